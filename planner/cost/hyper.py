"""Parallel residual streams (hyper-connections): how a block reads them and writes to them.

Mirrors ``build_hc_mix``, ``build_hc_combine`` and ``build_ple`` (src/models/qwen4exp.cpp) and ``build_hc_pre``,
``build_hc_post`` and ``build_hc_head`` (src/models/deepseek4.cpp), b11434, with their fused steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from planner.cost.blocks import Block
from planner.cost.draw import Env, fresh, inplace, matrix, norm, part
from planner.cost.plain_streams import is_plain, summed
from planner.cost.recurrent import convolved, rows_of
from planner.cost.tape import Node

Widen = Callable[[Node, Node], Node]
"""From what a block adds and the streams before it to the streams after it."""

_CONV_TAPS: Final = 4
"""Shifted copies that the convolution over a lookup adds up (``ple.conv_kernel`` of the published model)."""

_NGRAM: Final = 3
"""Tokens of a looked-up n-gram, by which the taps are apart."""


def mixed_in(env: Env, block: Block, x: Node, place: str) -> tuple[Node, Widen]:
    """The row that a mixer (``attn``) or FFN (``ffn``) reads, and what puts its result back."""
    if f"hc_{place}_up" in block.shapes:
        return _gated_mean(env, block, x, place)
    if is_plain(env, block, place):
        return summed(env, block, x, place)
    return _weighted_sum(env, block, x, place)


def _gated_mean(env: Env, block: Block, x: Node, place: str) -> tuple[Node, Widen]:
    names = {part: f"hc_{place}_{part}" for part in ("norm", "down", "up", "inject")}
    wide = env.tape.view(norm(env, x, names["norm"], env.hyper))
    low = inplace(env, inplace(env, matrix(env, block.width(names["down"]), wide, w=names["down"])))
    gate = env.tape.view(matrix(env, env.hyper * env.n_embd, low, w=names["up"]))
    row = matrix(env, env.n_embd, env.tape.view(wide), gate)

    def widen(out: Node, streams: Node) -> Node:
        inject = matrix(env, env.hyper, wide, w=names["inject"])
        share = inplace(env, inplace(env, inplace(env, inject)))
        return matrix(env, env.hyper * env.n_embd, out, streams, share)

    return row, widen


def _weighted_sum(env: Env, block: Block, x: Node, place: str) -> tuple[Node, Widen]:
    """Four streams and their 24 mixing weights: the FFN's share for the way back is computed at once."""
    tape, n, hyper = env.tape, env.n, env.hyper
    flat = fresh(env, x.size, tape.view(x))
    name = f"hc_{place}_fn"
    mixes = matrix(env, block.width(name), flat, w=name)

    def share() -> Node:
        scaled = fresh(env, 4 * hyper * n, part(env, mixes, hyper), w=f"hc_{place}_scale")
        return inplace(env, inplace(env, inplace(env, scaled, w=f"hc_{place}_base")))

    def back() -> tuple[Node, Node]:
        return share(), fresh(env, 4 * hyper * hyper * n, mixes, w=f"hc_{place}_scale")

    early = back() if place == "ffn" else None
    row = matrix(env, env.n_embd, x, share())

    def widen(out: Node, streams: Node) -> Node:
        return matrix(env, hyper * env.n_embd, out, streams, *(early or back()))

    return norm(env, row, "attn_norm" if place == "attn" else "ffn_norm"), widen


def looked_up(env: Env, block: Block, x: Node) -> Node:
    """Add rows gathered from an n-gram table to the streams, through a gate and a convolution."""
    assert env.lookup is not None
    tape, wide, start = env.tape, env.hyper * env.n_embd, len(env.tape.steps)
    state, rows = rows_of(env, (_CONV_TAPS - 1) * _NGRAM * wide)
    value = matrix(env, wide, tape.view(matrix(env, env.n_embd, env.lookup, w="ple_value")))
    key = norm(env, tape.view(matrix(env, wide, env.lookup, w="ple_key")), "ple_norm_key", env.hyper)
    tape.advance(start)
    query = norm(env, x, "ple_norm_query", env.hyper)
    product = tape.op("activations", key.size, key, query, key=key.key, inplace=True)
    dot = inplace(env, matrix(env, env.hyper, product))
    sign = fresh(env, dot.size, dot)
    root = inplace(env, inplace(env, inplace(env, dot)))
    gate = inplace(env, inplace(env, sign, root))
    gated = inplace(env, value, gate)
    normed = tape.view(norm(env, tape.view(gated), "ple_norm_conv", env.hyper))
    joined = convolved(env, (state, rows), normed, wide)
    total: Node | None = None
    for _ in range(_CONV_TAPS):
        tap = fresh(env, gated.size, tape.view(joined))
        tap = inplace(env, tap, tape.view(fresh(env, 4 * wide, w="ple_conv1d")))
        total = inplace(env, total, tap) if total else tap
    assert total is not None
    turned = fresh(env, gated.size, inplace(env, total))
    added = tape.op("activations", gated.size, gated, turned, key=gated.key, inplace=True)
    return tape.op("activations", x.size, x, tape.view(added), key=x.key, inplace=True)


def last_row(env: Env, block: Block, x: Node, weight: Node) -> Node:
    """The last mix of the streams, ready for the output matrix."""
    tape, wide = env.tape, env.hyper * env.n_embd
    tape.view(x)  # an output of the graph, for a draft head: nobody reads it here, so it is never freed
    if "hc_ffn_up" in block.shapes:
        flat = tape.op("activations", x.size, inplace(env, x), key=x.key, inplace=True, weight=weight, batch=env.n)
        low = inplace(env, inplace(env, matrix(env, block.width("hc_ffn_down"), tape.view(flat))))
        gate = inplace(env, matrix(env, wide, low))
        mixed = tape.op("activations", gate.size, tape.view(flat), gate, key=gate.key, inplace=True)
        row = fresh(env, 4 * env.n_embd * env.n, part(env, mixed, env.n_embd))
        for _ in range(env.hyper - 1):
            row = inplace(env, row, part(env, mixed, env.n_embd))
        return inplace(env, row)
    env.n = env.n_outputs
    streams = tape.view(matrix(env, wide, tape.view(x), env.outputs))
    share = matrix(env, env.hyper, fresh(env, streams.size, streams))
    share = tape.op("activations", share.size, share, key=share.key, inplace=True, weight=weight, batch=env.n)
    row = fresh(env, 4 * env.n_embd * env.n, part(env, streams, env.n_embd), tape.view(share))
    for _ in range(env.hyper - 1):
        other = fresh(env, row.size, part(env, streams, env.n_embd), tape.view(share))
        row = inplace(env, row, other)
    return tape.op("activations", row.size, inplace(env, row), key=row.key, inplace=True, weight=weight, batch=env.n)
