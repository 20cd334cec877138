"""Latent attention without positions over pools of cells that an indexer chooses.

Mirrors ``build_dsa_layer`` and ``build_kpool_select`` (src/models/glm5-next.cpp, b11434).
"""

from __future__ import annotations

from typing import Final

from planner.cost.attention import attend
from planner.cost.blocks import Block
from planner.cost.draw import Env, fresh, inplace, matrix, norm
from planner.cost.pooled import chosen_width, constant, held_pools, index, pools_of
from planner.cost.tape import Node

_GATHERED_BATCH: Final = 16
"""Batches up to this one gather the chosen latents instead of masking the others."""


def latent_pooled(env: Env, block: Block, x: Node) -> Node:
    """All steps from the norm of the input to the output projection."""
    tape, n_head, rank = env.tape, block.layer.n_head, block.layer.n_embd_k
    cache = _indexed(env, block, x) if block.pool else None
    low = norm(env, matrix(env, block.width("attn_q_a"), x, w="attn_q_a"), "attn_q_a_norm")
    picked = _picked(env, block, _scores(env, block, (x, low), cache)) if cache else None
    q = matrix(env, block.width("attn_q_b"), low, w="attn_q_b")
    query = tape.view(fresh(env, 4 * n_head * rank * env.n, tape.view(q), w="attn_k_b"))
    row = norm(env, matrix(env, rank, x, w="attn_kv_a_mqa"), "attn_kv_a_norm")
    n_v = block.shapes["attn_v_b"][1] * n_head
    if _gathers(env):
        env.selected = picked or env.selected
        mixed = _gathered(env, block, query, row)
    else:
        mixed = attend(env, block, query, row, None, n_head * rank, lambda: _selected(env, block, picked))
        if env.flash_attn:
            mixed = fresh(env, 4 * n_v * env.n, tape.view(mixed), w="attn_v_b")
            mixed = fresh(env, 4 * n_v * env.n, tape.view(mixed))
    return matrix(env, env.n_embd, mixed, w="attn_output")


def _gathers(env: Env) -> bool:
    """Whether the graph reads chosen latents only: small batches in a context beyond the selection."""
    context = env.n_ctx_seq * env.n_stream
    return env.n_ubatch <= _GATHERED_BATCH and context > env.traits.n_top_k + env.traits.pool - 1


def _gathered(env: Env, block: Block, query: Node, row: Node) -> Node:
    tape, layer, selected = env.tape, block.layer, env.selected
    assert selected is not None
    cache = env.cache("K copy", env.cells[0] * 2 * layer.n_embd_k)
    tape.write(tape.view(cache), tape.view(row), env.inputs[0].k_indices)
    count = chosen_width(env, env.traits.pool) * env.n
    keys = fresh(env, 4 * layer.n_embd_k * count, cache, tape.view(selected))
    turned = fresh(env, keys.size, tape.view(keys))
    scores = inplace(env, fresh(env, 4 * count * layer.n_head, keys, tape.view(query)), env.inputs[0].mask)
    mixed = fresh(env, 4 * layer.n_head * layer.n_embd_k * env.n, turned, scores)
    mixed = fresh(env, 4 * layer.n_head * block.shapes["attn_v_b"][1] * env.n, mixed, w="attn_v_b")
    return fresh(env, mixed.size, tape.view(mixed))


def _picked(env: Env, block: Block, score: Node) -> Node:
    """Indices of the cells of the best pools, and of the last one."""
    tape, n, pool = env.tape, env.n, block.pool
    pools = pools_of(env, pool)
    best, width = min(pools, env.traits.n_top_k // pool), chosen_width(env, pool)
    chosen = index(env, best, score)
    as_rows = index(env, best, chosen)
    order = index(env, best, tape.view(index(env, best, tape.view(score), chosen)))
    chosen = index(env, best, index(env, best, tape.view(index(env, best, tape.view(as_rows), order))))
    members = env.given("cells of all pools", 4 * pool * pools)
    tail = env.given("cells behind the last pool", 4 * (pool - 1) * n)
    picked = index(env, width, index(env, pool * best, members, chosen), tail)
    tape.expand()
    return picked


def _selected(env: Env, block: Block, picked: Node | None) -> Node:
    """A mask that lets the chosen cells through; blocks without an indexer take that of the last one."""
    if picked is None:
        assert env.selected is not None
        return env.selected
    tape, n, width = env.tape, env.n, chosen_width(env, block.pool)
    element = 2 if env.flash_attn else 4
    zeros = tape.op("indexer top k", element * width * n, constant(env, element * width))
    cells = inplace(env, index(env, width, picked))
    live = inplace(env, tape.view(env.given("live cells", 4 * width * n)))
    cells = index(env, width, inplace(env, inplace(env, cells, live)))
    size = element * (env.cells[0] // env.n_stream + width)
    closed = tape.op("mask", size * n, constant(env, size))
    mask = env.inputs[0].mask
    opened = tape.write(tape.view(closed), tape.view(zeros), cells)
    own = tape.view(mask)
    env.selected = tape.op(mask.label, mask.size, tape.view(opened), own, key=own.key, inplace=True)
    return env.selected


def _indexed(env: Env, block: Block, x: Node) -> Node:
    """The indexer's cache: keys and gates of this batch, and the pools that they complete (any pool may be new)."""
    tape, n, head = env.tape, env.n, block.width("indexer.attn_k")
    cache = env.cache("indexer K copy", 12 * head * env.cells[0])
    key = norm(env, matrix(env, head, x, w="indexer.attn_k"), "indexer.k_norm")
    key = inplace(env, key, w="indexer.k_norm.bias")
    gate = matrix(env, head, x, w="indexer_compressor_gate")
    pair = fresh(env, 8 * head * n, key, gate)
    packed = fresh(env, 12 * head * n, pair, constant(env, 4 * head * n))
    tape.write(tape.view(cache), tape.view(packed), env.given("indexer cells", 8 * n))
    new = held_pools(env, block.pool)
    members = tape.view(env.given("cells of new pools", 4 * block.pool * new))
    rows = fresh(env, 8 * head * block.pool * new, cache, members)
    part = 4 * head * block.pool * new
    gates = fresh(env, part, fresh(env, part, tape.view(rows), w="indexer_compressor_ape", batch=0))
    shares = fresh(env, part, tape.view(gates))
    keys = fresh(env, part, tape.view(rows))
    weighed = tape.op("activations", part, tape.view(shares), keys, key=keys.key, inplace=True)
    pooled = fresh(env, 4 * head * new, weighed)
    tape.write(tape.view(cache), tape.view(pooled), env.given("cells that keep new pools", 8 * new))
    tape.expand()
    return cache


def _scores(env: Env, block: Block, rows: tuple[Node, Node], cache: Node) -> Node:
    """One score per pool and token.

    Args:
        rows: the input, and the narrow row before the queries.
    """
    tape, n, head, (x, low) = env.tape, env.n, block.width("indexer.attn_k"), rows
    pools = pools_of(env, block.pool)
    query = matrix(env, block.width("indexer.attn_q_b"), low, w="indexer.attn_q_b")
    found = fresh(env, 4 * head * pools, cache, env.given("cells that keep pools", 4 * pools))
    weights = inplace(env, matrix(env, block.width("indexer.proj"), x, w="indexer.proj"))
    return tape.op("indexer scores", 4 * pools * n, tape.view(query), tape.view(found), weights, env.indexer_mask)
