"""Parallel residual streams without fused steps: every stream is multiplied and added on its own.

Mirrors ``build_hc_pre``, ``build_hc_post`` and ``hy_v4_hc_reduce`` (src/models/hy-v4.cpp, b11434), with the casts to
f32 that they ask for.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.cost.blocks import Block
from planner.cost.draw import Env, fresh, inplace, matrix, norm, part
from planner.cost.tape import Node


def is_plain(env: Env, block: Block, place: str) -> bool:
    """Whether streams have one weight each to be read and to be written, and no mix among themselves."""
    return block.width(f"hc_{place}_fn") == 2 * env.hyper


def summed(env: Env, block: Block, x: Node, place: str) -> tuple[Node, Callable[[Node, Node], Node]]:
    """The row that a mixer (``attn``) or FFN (``ffn``) reads, and what puts its result back."""
    tape, n, hyper = env.tape, env.n, env.hyper
    row_size, name = 4 * env.n_embd * n, f"hc_{place}_fn"
    whole = fresh(env, x.size, x)
    mixes = matrix(env, block.width(name), fresh(env, x.size, tape.view(x)), w=name)

    def share() -> Node:
        scaled = fresh(env, 4 * hyper * n, part(env, mixes, hyper), w=f"hc_{place}_scale")
        return inplace(env, inplace(env, inplace(env, scaled, w=f"hc_{place}_base")))

    read = share()
    row: Node | None = None
    for _ in range(hyper):
        item = fresh(env, row_size, part(env, whole, env.n_embd), tape.view(read))
        row = inplace(env, row, item) if row else item
    assert row is not None

    def widen(out: Node, streams: Node) -> Node:
        before, added = fresh(env, streams.size, streams), fresh(env, row_size, out)
        write = fresh(env, 4 * hyper * n, inplace(env, share()))
        joined: Node | None = None
        for i in range(hyper):
            item = fresh(env, row_size, added, tape.view(write))
            sources = (part(env, before, env.n_embd), item)
            item = tape.op(item.label, row_size, *sources, key=item.key, inplace=True)
            joined = fresh(env, (i + 1) * row_size, joined, tape.view(item)) if joined else tape.view(item)
        assert joined is not None
        return matrix(env, hyper * env.n_embd, joined)

    chosen = fresh(env, row_size, row)
    return norm(env, chosen, "attn_norm" if place == "attn" else "ffn_norm"), widen
