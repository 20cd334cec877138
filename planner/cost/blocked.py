"""Attention over blocks of positions that an indexer chooses, one selection per group of heads.

Mirrors the sparse branch of src/models/minimax-m3.cpp and its ``build_attn_msa_fa`` (b11434), for batches of more than
one token per stream.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.cost.blocks import Block
from planner.cost.draw import Env, fresh, inplace, matrix, norm
from planner.cost.kv_types import row_bytes
from planner.cost.shape import pad
from planner.cost.tape import Node


def is_blocked(env: Env, block: Block) -> bool:
    """Whether a block attends sparsely: flash attention, a stream per sequence, more than one token in each."""
    separate = env.n_stream == env.n_seq
    return bool(
        env.traits.block_size and block.layer.indexer_k and env.flash_attn and separate and env.n > env.n_stream
    )


def index_keys(env: Env, block: Block, x: Node) -> Node:
    """The indexer's cache with the keys of this batch."""
    tape, layer = env.tape, block.layer
    cache = env.cache("indexer K copy", env.cells[0] * row_bytes(env.k_type, layer.indexer_k))
    key = norm(env, matrix(env, layer.indexer_k, x, w="indexer.k_proj"), "indexer.k_norm")
    tape.write(tape.view(cache), inplace(env, key, env.positions), env.inputs[0].k_indices)
    tape.expand()
    return cache


def group_mask(env: Env, block: Block, x: Node, cache: Node) -> Callable[[], Node]:
    """What adds the mask of one stream and its groups: the chosen blocks, spread over cells."""
    query: list[Node] = []

    def mask() -> Node:
        if not query:
            width = block.width("indexer.q_proj")
            found = norm(
                env, matrix(env, width, x, w="indexer.q_proj"), "indexer.q_norm", width // block.layer.indexer_k
            )
            query.append(inplace(env, found, env.positions))
        return _mask(env, block, cache, query[0])

    return mask


def _mask(env: Env, block: Block, cache: Node, query: Node) -> Node:
    tape, groups, n = env.tape, block.layer.n_head_kv, env.n // env.n_stream
    cells, positions = env.cells[0] // env.n_stream, pad(env.n_positions, env.traits.block_size)
    n_blocks = positions // env.traits.block_size
    best, rows = min(n_blocks, env.traits.n_top_k), groups * n
    bias = _share(env, env.given("bias of blocks", 4 * n_blocks * env.n))
    where = _share(env, env.given("cells of positions", 4 * positions * env.n_stream))
    keys = fresh(env, 4 * block.layer.indexer_k * positions, cache, where)
    score = fresh(env, 4 * positions * rows, keys, tape.view(query), label="indexer scores")
    seen = _share(env, env.given("positions seen", 4 * positions * env.n))
    score = tape.op(score.label, score.size, score, seen, key=score.key, inplace=True)
    order = inplace(env, fresh(env, 4 * n_blocks * rows, score), bias)
    chosen = fresh(env, 4 * best * rows, order)
    zero = inplace(env, fresh(env, chosen.size, chosen))
    closed = fresh(env, 2 * n_blocks * n, fresh(env, 4 * n_blocks * n, bias))
    opened = tape.write(tape.view(fresh(env, 2 * n_blocks * rows, closed)), zero, chosen)
    turned = fresh(env, 2 * n_blocks * rows, fresh(env, 2 * n_blocks * rows, tape.view(opened)))
    spread = fresh(
        env, 4 * rows * cells, turned, env.given("blocks of cells", 4 * env.cells[0]), label="mask of groups"
    )
    mask = fresh(env, spread.size, spread, label="mask of groups")
    mask = tape.op(mask.label, mask.size, mask, _share(env, _wide_mask(env)), key=mask.key, inplace=True)
    return fresh(env, mask.size // 2, mask, label="mask of groups")


def _share(env: Env, node: Node) -> Node:
    """One stream's part of an input: a view of its own, so every block copies it anew."""
    return env.tape.view(node, span=node.size // env.n_stream)


def _wide_mask(env: Env) -> Node:
    """The mask of the cache in f32, once for all blocks."""
    if env.wide_mask is None:
        mask = env.inputs[0].mask
        env.wide_mask = fresh(env, 2 * mask.size, mask, label=mask.label)
    return env.wide_mask
