"""Attention over the cells that a lightning indexer chooses.

Mirrors ``build_attn`` with ``top_k`` (src/llama-graph.cpp, b11434).
"""

from __future__ import annotations

from planner.cost.blocks import Block
from planner.cost.draw import Env, fresh, inplace, matrix
from planner.cost.kv_types import row_bytes
from planner.cost.shape import pad
from planner.cost.tape import Node


def top_k(env: Env, block: Block, low: Node, x: Node) -> Node:
    """Indices of the cells that a sparse block attends to: one f32 score per cell and token."""
    tape, layer = env.tape, block.layer
    q = matrix(env, block.width("indexer.attn_q_b"), low, w="indexer.attn_q_b")
    q = fresh(env, q.size, tape.view(q), env.positions)
    q = fresh(env, q.size, q) if env.traits.turned_indexer else q
    weights = inplace(env, tape.view(matrix(env, block.width("indexer.proj"), x, w="indexer.proj")))
    cells = env.cells[layer.window] // env.n_stream
    mask = env.indexer_mask
    keys = env.cache("indexer K copy", env.cells[layer.window] * row_bytes(env.k_type, layer.indexer_k))
    score = tape.op("indexer scores", 4 * cells * env.n, tape.view(q), keys, weights, mask)
    best = 4 * min(cells, env.traits.n_top_k) * env.n
    return tape.op("indexer top k", best, tape.op("indexer top k", best, score))


def sparse_mask(env: Env, mask: Node) -> Node:
    """A mask that lets only the chosen cells through (``build_attn`` with ``top_k``, src/llama-graph.cpp, b11434)."""
    assert env.top_k is not None
    tape = env.tape
    closed = tape.op(mask.label, mask.size, mask)
    size = 4 * min(max(env.cells.values()) // env.n_stream, env.traits.n_top_k) * env.n
    leaves = [tape.leaf("indexer top k", size, "zeros", given=False) for _ in range(1 + env.spare_zeros)]
    zeros = tape.op("indexer top k", size, *leaves, key="zeros", inplace=True)
    opened = tape.write(tape.view(closed), tape.view(zeros), tape.view(env.top_k))
    return tape.op(mask.label, mask.size, tape.view(opened), mask)


def compressed_cells(n_ctx_seq: int, ratio: int) -> int:
    """Entries of a compressed cache, padded to 256."""
    return pad(-(-n_ctx_seq // ratio), 256)
