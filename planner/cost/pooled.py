"""Attention over pools of cells that an indexer chooses.

Mirrors ``build_qsa_sel`` (src/models/qwen4exp.cpp, b11434).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from planner.cost.blocks import Block
from planner.cost.draw import Env, fresh, inplace, matrix, norm
from planner.cost.shape import pad
from planner.cost.tape import Node

POOL_PADDING: Final = 64


def pooled_mask(env: Env, block: Block, x: Node) -> Callable[[], Node]:
    """Choose the best pools of cells now; returns what adds the mask of their cells where attention reads it."""
    tape, n, pool = env.tape, env.n, block.pool
    pools = pools_of(env, pool)
    score = _scores(env, block, x, pools)
    best = min(pools, env.traits.n_top_k // pool)
    chosen = index(env, best, score)
    tail = env.given("cells behind the last pool", 4 * (pool - 1) * n)
    members = env.given("cells of all pools", 4 * pool * pools)
    picked = index(env, pool * best + pool - 1, index(env, pool * best, members, chosen), tail)
    tape.expand()

    def close() -> Node:
        cells, element = env.cells[0] // env.n_stream, 2 if env.flash_attn else 4
        n_cells = chosen_width(env, pool)
        zeros = tape.op("indexer top k", element * n_cells * n, constant(env, element * n_cells))
        cells_of = index(env, n_cells, picked)
        live = inplace(env, inplace(env, index(env, best, score, chosen)))
        live = index(env, n_cells, index(env, pool * best, live), inplace(env, fresh(env, tail.size, tail)))
        dump = inplace(env, index(env, n_cells, index(env, n_cells, live)))
        cells_of = inplace(env, inplace(env, inplace(env, cells_of, dump), live), dump)
        cells_of = index(env, n_cells, cells_of)
        closed = tape.op("mask", element * (cells + n_cells) * n, constant(env, element * (cells + n_cells)))
        opened = tape.write(tape.view(closed), tape.view(zeros), cells_of)
        mask = env.inputs[0].mask
        return tape.op(mask.label, mask.size, tape.view(opened), mask)

    return close


def held_pools(env: Env, pool: int) -> int:
    """Pools that the cache holds (``n_pool_max``, src/llama-memory-hybrid-idx.cpp, b11434)."""
    return env.cells[0] // env.n_stream // pool * env.n_seq


def pools_of(env: Env, pool: int) -> int:
    """Pools that the graph scores: those of the cache and one more, in 64s (``kpool_pad``)."""
    return pad(held_pools(env, pool) + 1, POOL_PADDING)


def chosen_width(env: Env, pool: int) -> int:
    """Cells that one token attends to: those of the best pools, and of the last one while it is incomplete."""
    return pool * min(pools_of(env, pool), env.traits.n_top_k // pool) + pool - 1


def index(env: Env, count: int, *sources: Node) -> Node:
    """Indices or marks, four bytes each, ``count`` per token."""
    return fresh(env, 4 * count * env.n, *sources, label="indexer top k")


def constant(env: Env, size: int) -> Node:
    """A constant that is filled in place: there from the start, once for each block like this one."""
    leaves = [env.tape.leaf("indexer top k", size, "zeros", given=False) for _ in range(1 + env.spare_zeros)]
    return env.tape.op("indexer top k", size, *leaves, key="zeros", inplace=True)


def _scores(env: Env, block: Block, x: Node, pools: int) -> Node:
    """One score per pool and token; raw and pooled keys go to the indexer's cache first."""
    tape, n = env.tape, env.n
    width, head = block.width("indexer.q_proj"), block.width("indexer.k_proj")
    new = held_pools(env, block.pool)
    cache = env.cache("indexer K copy", 4 * head * env.cells[0])
    raw = matrix(env, head, x, w="indexer.k_proj")
    packed = fresh(env, 8 * head * n, raw, constant(env, 4 * head * n))
    tape.write(tape.view(cache), tape.view(packed), env.given("indexer cells", 8 * n))
    members = tape.view(env.given("cells of new pools", 4 * block.pool * new))
    rows = fresh(env, 4 * head * block.pool * new, cache, members)  # any pool may be new
    pooled = fresh(env, 4 * head * new, tape.view(rows))
    for _ in range(block.pool - 1):
        pooled = inplace(env, pooled, tape.view(rows))
    pooled = norm(env, inplace(env, pooled), "indexer.k_norm")
    pooled = fresh(env, pooled.size, tape.view(pooled), env.given("positions of new pools", 16 * new))
    tape.write(tape.view(cache), tape.view(pooled), env.given("cells that keep new pools", 8 * new))
    q = norm(env, tape.view(matrix(env, width, x, w="indexer.q_proj")), "indexer.q_norm", width // head)
    q = inplace(env, q, env.positions)
    keys = fresh(env, 4 * head * pools, cache, env.given("cells that keep pools", 4 * pools))
    weights = constant(env, 4 * width // head * n)
    return tape.op("indexer scores", 4 * pools * n, q, tape.view(keys), weights, env.indexer_mask)
