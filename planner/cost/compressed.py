"""DeepSeek-V4's attention: a sliding raw cache joined with compressed entries, one latent K that is V, too.

Mirrors ``build_attention_impl`` and what it calls (src/models/deepseek4.cpp, b11434).
"""

from __future__ import annotations

from planner.cost.blocks import Block
from planner.cost.draw import Env, fresh, inplace, matrix, norm, part
from planner.cost.kv_types import is_quantised, row_bytes
from planner.cost.sparse import compressed_cells
from planner.cost.tape import HOST, Node

_OVERLAP_RATIO = 4
"""Blocks with this ratio compress two overlapping windows and thin entries out by an indexer (``DSV4_CSA_RATIO``)."""


def compressed(env: Env, block: Block, x: Node) -> Node:
    """All steps from the norm of the input to the output projection."""
    layer, tape, n = block.layer, env.tape, env.n
    ratio, given = layer.compress_ratio, env.inputs[layer.window]
    raw = env.cache("K copy", env.cells[layer.window] * row_bytes(env.k_type, layer.n_embd_k))
    pooled: Node | None = None
    if ratio:
        size = compressed_cells(env.n_ctx_seq, ratio) * env.n_stream * row_bytes(env.k_type, layer.n_embd_k)
        pooled = env.cache("K copy", size)
        _compress(env, block, x, "attn_compressor", layer.head_k, pooled)
        if "indexer_compressor_kv" in block.shapes:
            keys = env.cache(
                "indexer K copy", _entries(env, block) * env.n_stream * row_bytes(env.k_type, layer.indexer_k)
            )
            _compress(env, block, x, "indexer_compressor", layer.indexer_k, keys)
    low = norm(env, matrix(env, block.width("attn_q_a"), x, w="attn_q_a"), "attn_q_a_norm")
    wide = block.width("attn_q_b")
    q = fresh(env, 4 * wide * n, tape.view(matrix(env, wide, low, w="attn_q_b")))
    q = _rotated(env, block, inplace(env, q, env.positions))
    kv = norm(env, matrix(env, layer.head_k, x, w="attn_kv"), "attn_kv_a_norm")
    kv = _rotated(env, block, fresh(env, kv.size, tape.view(kv), env.positions))
    tape.write(tape.view(raw), tape.view(kv), given.k_indices)
    mixed = _attended(env, block, q, (raw, pooled), (low, x))
    turned = fresh(env, 4 * wide * n, tape.view(_rotated(env, block, mixed)), env.positions)
    narrow = fresh(env, 4 * block.width("attn_output_a") * n, tape.view(turned), w="attn_output_a")
    return matrix(env, env.n_embd, tape.view(fresh(env, narrow.size, tape.view(narrow))), w="attn_output_b")


def _entries(env: Env, block: Block) -> int:
    return compressed_cells(env.n_ctx_seq, block.layer.compress_ratio)


def _rotated(env: Env, block: Block, node: Node) -> Node:
    """One more multiply for a quantised cache (``llama_mul_mat_hadamard``, src/llama-impl.h, b11434)."""
    if not env.rotated_k:
        return node
    rotation = env.inputs[block.layer.window].rotations[0]
    return env.tape.view(fresh(env, node.size, rotation, env.tape.view(node)))


def _compress(env: Env, block: Block, x: Node, name: str, head: int, cache: Node) -> None:
    """New entries of a compressed cache from this batch and the state before it."""
    tape, n, ratio = env.tape, env.n, block.layer.compress_ratio
    windows = 2 if ratio == _OVERLAP_RATIO else 1
    n_blocks = n // ratio + (windows == 1)
    state = env.cache("state copy", 4 * windows * head * windows * ratio * env.n_seq)
    read = env.given(f"{name} {ratio} rows to read", 4 * windows * ratio * n_blocks)
    place = env.given(f"{name} {ratio} places", 4 * n)
    kept, sides = [], []
    for weight in (f"{name}_kv", f"{name}_gate"):
        row = matrix(env, windows * head, x, w=weight)
        if weight.endswith("gate"):
            row = inplace(env, row, fresh(env, row.size, place, w=f"{name}_ape", batch=0))
        kept.append(row)
        joined = fresh(env, row.size + state.size, state, row)
        if windows > 1:
            joined = fresh(env, joined.size, joined, fresh(env, 4 * windows * head, part(env, joined, 1)))
        rows = fresh(env, 4 * windows * windows * head * ratio * n_blocks, joined, read)
        if windows > 1:
            halves = [fresh(env, rows.size // 4, part(env, rows, 1)) for _ in range(2)]
            rows = fresh(env, rows.size // 2, *(tape.view(half) for half in halves))
        sides.append(fresh(env, rows.size, tape.view(rows)))
    pooled = inplace(env, sides[0], inplace(env, sides[1]))
    pooled = fresh(env, 4 * head * n_blocks, pooled)
    pooled = norm(env, fresh(env, pooled.size, tape.view(pooled)), f"{name}_norm")
    pooled = inplace(env, pooled, env.given(f"{name} {ratio} positions", 4 * n_blocks))
    rotation = env.inputs[block.layer.window].rotations[0].size if name.startswith("attn") else 4 * head * head
    if env.rotated_k or name.startswith("indexer"):
        pooled = fresh(env, pooled.size, env.given(f"{name} {ratio} rotation", rotation), tape.view(pooled))
    tape.write(tape.view(cache), tape.view(pooled), env.given(f"{name} {ratio} cells", 8 * n_blocks))
    kept_rows, kept_cells = (
        env.given(f"{name} {ratio} {what} to keep", 8 * windows * ratio) for what in ("rows", "cells")
    )
    for row in kept:
        tape.write(tape.view(state), fresh(env, state.size, row, kept_rows), kept_cells)
    tape.expand()


def _attended(env: Env, block: Block, q: Node, caches: tuple[Node, Node | None], rows: tuple[Node, Node]) -> Node:
    """Attention of Q over the raw cache and, behind it, the compressed one."""
    layer, tape, n = block.layer, env.tape, env.n
    raw, pooled = caches
    cells = env.cells[layer.window] // env.n_stream
    keys = raw
    if pooled:
        cells += _entries(env, block)
        size = cells * env.n_stream * row_bytes(env.k_type, layer.head_k)
        keys = tape.view(tape.op("attention", size, raw, pooled))

    def mask() -> Node:
        return _joined_mask(env, block, *rows) if pooled else env.inputs[layer.window].mask

    if env.flash_attn:
        copies = 2 if keys is raw and env.place.cache == HOST else 1
        extra = 2 * cells * env.n_stream * layer.head_k * copies * is_quantised(env.k_type)
        return tape.view(tape.op("attention", q.size, tape.view(q), keys, tape.view(keys), mask(), extra=extra))
    turned = fresh(env, 2 * cells * env.n_stream * layer.head_k, keys)
    scores = tape.op("attention scores", 4 * cells * n * layer.n_head, keys, tape.view(q), key=("kq", cells))
    scores = tape.op("attention scores", scores.size, scores, mask(), key=("kq", cells), inplace=True)
    home = HOST if env.end_on_host else None
    return tape.op("attention", q.size, tape.view(fresh(env, q.size, turned, scores)), home=home)


def _joined_mask(env: Env, block: Block, low: Node, x: Node) -> Node:
    """The raw mask beside the mask of compressed entries, which an indexer thins out."""
    tape, own = env.tape, env.entries[block.layer.compress_ratio]
    raw, entries, element = env.inputs[block.layer.window].mask, _entries(env, block), 2 if env.flash_attn else 4
    if "indexer.attn_q_b" in block.shapes:
        count = min(entries, env.traits.n_top_k) * env.n
        leaves = [tape.leaf("indexer top k", element * count, "zeros", given=False) for _ in range(1 + env.spare_zeros)]
        zeros = tape.op("indexer top k", element * count, *leaves, key="zeros", inplace=True)
        q = matrix(env, block.width("indexer.attn_q_b"), low, w="indexer.attn_q_b")
        rotation = env.given(f"indexer_compressor {block.layer.compress_ratio} rotation", 4 * block.layer.indexer_k**2)
        q = fresh(env, q.size, rotation, tape.view(fresh(env, q.size, tape.view(q), env.positions)))
        weights = inplace(env, matrix(env, block.width("indexer.proj"), x, w="indexer.proj"))
        keys = env.cache("indexer K copy", entries * env.n_stream * row_bytes(env.k_type, block.layer.indexer_k))
        score = tape.op("indexer scores", 4 * entries * env.n, tape.view(q), keys, tape.view(weights), env.indexer_mask)
        best = tape.op("indexer top k", 4 * count, tape.op("indexer top k", 4 * count, score))
        closed = tape.op(own.label, own.size, own)
        opened = tape.write(tape.view(closed), tape.view(zeros), tape.view(best))
        own = tape.op(own.label, own.size, tape.view(opened), own)
    return tape.op("mask", raw.size + own.size, raw, own)
