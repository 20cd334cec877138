"""Attention over chosen cells: lightning indexers, pooled selections, compressed caches.

Mirrors ``build_attn`` with ``top_k`` (src/llama-graph.cpp), ``build_qsa_sel`` (src/models/qwen4exp.cpp) and
``build_attention_impl`` (src/models/deepseek4.cpp), all b11434.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.cost.blocks import Block, Env, fresh, inplace, matrix, norm
from planner.cost.shape import pad
from planner.cost.tape import Node


def top_k(env: Env, block: Block, low: Node, x: Node) -> Node:
    """Indices of the cells that a sparse block attends to: one f32 score per cell and token."""
    tape, layer = env.tape, block.layer
    q = matrix(env, block.width("indexer.attn_q_b"), low)
    q = fresh(env, q.size, tape.view(q), env.positions)
    q = fresh(env, q.size, q)
    weights = inplace(env, tape.view(matrix(env, block.width("indexer.proj"), x)))
    cells = env.cells[layer.window] // env.n_stream
    mask = env.indexer_mask
    score = tape.op("indexer scores", 4 * cells * env.n, tape.view(q), weights, mask)
    best = 4 * min(cells, env.n_top_k) * env.n
    return tape.op("indexer top k", best, tape.op("indexer top k", best, score))


def sparse_mask(env: Env, mask: Node) -> Node:
    """A mask that lets only the chosen cells through (``build_attn`` with ``top_k``, src/llama-graph.cpp, b11434)."""
    assert env.top_k is not None
    tape = env.tape
    zeros = tape.op("indexer top k", env.top_k.size, env.zeros.pop()) if env.zeros else env.top_k
    closed = tape.op(mask.label, mask.size, mask, key=None)
    opened = tape.view(closed, tape.view(zeros), tape.view(env.top_k))
    return tape.op(mask.label, mask.size, opened, mask)


def compressed_cells(n_ctx_seq: int, ratio: int) -> int:
    """Entries of a compressed cache, padded to 256."""
    return pad(-(-n_ctx_seq // ratio), 256)


def pooled_mask(env: Env, block: Block, x: Node) -> Callable[[], Node]:
    """Choose the best pools of cells now; returns what adds the mask of their cells where attention reads it."""
    tape, cells, n = env.tape, env.cells[0] // env.n_stream, env.n
    pools = -(-env.cells[0] // env.pool)
    width = block.width("indexer.q_proj")
    head = block.width("indexer.k_proj")
    tape.store(tape.view(fresh(env, 8 * head * n, matrix(env, head, x), fresh(env, 4 * head * n))))
    rows = fresh(env, 4 * head * env.pool * (n // env.pool + 1))
    tape.store(fresh(env, rows.size // env.pool, rows))
    keys = fresh(env, 4 * head * pools)
    q = norm(env, tape.view(matrix(env, width, x)))
    score = tape.op("indexer scores", 4 * pools * n, fresh(env, q.size, q, env.positions), keys, env.indexer_mask)
    best = min(pools, env.n_top_k // env.pool)
    chosen = tape.op("indexer top k", 4 * best * n, score)
    n_cells = env.pool * (best + 1) - 1
    wide = 4 * n_cells * n
    picked = tape.op("indexer top k", wide, tape.op("indexer top k", 4 * env.pool * best * n, chosen))

    def close() -> Node:
        element = 2 if env.flash_attn else 4
        zeros = tape.op("indexer top k", element * n_cells * n)
        live = tape.op("indexer top k", wide, tape.op("indexer top k", 4 * env.pool * best * n, score, chosen))
        dump = tape.op("indexer top k", wide, tape.op("indexer top k", wide, live))
        index = tape.op("indexer top k", wide, picked)
        index = tape.op("indexer top k", wide, index, dump, key=("index",))
        index = tape.op("indexer top k", wide, index, live, dump, key=("index",), inplace=True)
        index = tape.op("indexer top k", wide, index)
        closed = tape.op("mask", element * (cells + n_cells) * n)
        opened = tape.view(closed, tape.view(zeros), tape.view(index))
        return tape.op("mask", env.inputs[0].mask.size, opened, env.inputs[0].mask)

    return close


def compressed(env: Env, block: Block, x: Node) -> Node:
    """DeepSeek-V4: a sliding raw cache joined with compressed entries, one latent K that is V, too."""
    layer, tape, n = block.layer, env.tape, env.n
    low = norm(env, matrix(env, block.width("attn_q_a"), x))
    wide = block.width("attn_q_b")
    q = tape.op("activations", 4 * wide * n, tape.view(matrix(env, wide, low)), key=("q", n))
    q = inplace(env, q, env.positions)
    kv = fresh(env, 4 * layer.head_k * n, norm(env, matrix(env, layer.head_k, x)), env.positions)
    ratio, entries = layer.compress_ratio, 0
    given = env.inputs[layer.window]
    mask = given.mask
    if ratio:
        rows = matrix(env, block.width("attn_compressor_kv") * (2 if ratio == 4 else 1), x)
        tape.store(fresh(env, 4 * rows.size // ratio, rows))
        entries = compressed_cells(env.n_ctx_seq, ratio)
        mask = _joined_mask(env, block, low, x)
    tape.store(tape.view(kv), given.k_indices)
    cells = env.cells[layer.window] // env.n_stream + entries
    keys = tape.op("attention", 2 * cells * env.n_stream * layer.head_k) if entries else None
    sources = (tape.view(q), *((keys,) if keys else ()))
    if env.flash_attn:
        mixed = tape.op("attention", 4 * wide * n, *sources, mask)
    else:
        scores = tape.op("attention scores", 4 * cells * n * layer.n_head, *sources, key=("kq", cells))
        scores = tape.op("attention scores", scores.size, scores, mask, key=("kq", cells), inplace=True)
        mixed = tape.op("attention", 4 * wide * n, tape.view(fresh(env, 4 * wide * n, scores)))
    turned = fresh(env, 4 * wide * n, tape.view(mixed), env.positions)
    return matrix(env, env.n_embd, fresh(env, 4 * block.width("attn_output_a") * n, tape.view(turned)))


def _joined_mask(env: Env, block: Block, low: Node, x: Node) -> Node:
    """The raw mask beside the mask of compressed entries, which an indexer thins out at ratio 4."""
    tape, own = env.tape, env.entries[block.layer.compress_ratio]
    raw = env.inputs[block.layer.window].mask
    entries = own.size // ((2 if env.flash_attn else 4) * env.n)
    if "indexer.attn_q_b" in block.shapes:
        q = matrix(env, block.width("indexer.attn_q_b"), low)
        q = fresh(env, q.size, fresh(env, q.size, tape.view(q), env.positions))
        weights = matrix(env, block.width("indexer.proj"), x)
        score = tape.op("indexer scores", 4 * entries * env.n, tape.view(q), weights, env.indexer_mask)
        best = tape.op("indexer top k", 4 * min(entries, env.n_top_k) * env.n, score)
        best = tape.op("indexer top k", best.size, best)
        opened = tape.view(tape.op(own.label, own.size, own), best)
        own = tape.op(own.label, own.size, opened, own)
    return tape.op("mask", raw.size + own.size, raw, own)
