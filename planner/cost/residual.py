"""One whole block around its residual stream."""

from __future__ import annotations

from typing import Final

from planner.cost.blocks import Block
from planner.cost.draw import Env, fresh, inplace, matrix, norm
from planner.cost.experts import feed_forward, has_feed_forward, side_by_side
from planner.cost.hyper import Widen, looked_up, mixed_in
from planner.cost.mixers import has_mixer, mixer
from planner.cost.recurrent import rows_first
from planner.cost.tape import Node

_NORMS: Final = {"attn": ("attn_norm",), "ffn": ("ffn_norm", "post_attention_norm", "attn_output_norm", "attn_norm")}
"""Names of the norm before a mixer and before an FFN; a block of one function has one norm."""


def block_steps(env: Env, block: Block, x: Node, *, last: bool) -> Node:
    """One block with its residuals; the last one keeps only the rows that are output."""
    if "ple_key" in block.shapes:
        x = looked_up(env, block, x)
    if "attn_res_score" in block.sizes:
        return _banked(env, block, x, last=last)
    if _is_parallel(block):
        return _parallel(env, block, x, last=last)
    if has_mixer(block):
        before = rows_first(env, block)
        row, widen = _narrowed(env, block, x, "attn")
        mixed = mixer(env, block, row, before)
        if last:
            mixed, x = _kept_rows(env, mixed, x)
            last = False
        if "ffn_norm" in block.sizes and "post_attention_norm" in block.sizes:
            mixed = norm(env, mixed, "post_attention_norm")
        x = widen(mixed, x)
    return _fed_forward(env, block, x, last=last) if has_feed_forward(block) else x


def _banked(env: Env, block: Block, x: Node, *, last: bool) -> Node:
    """A block that reads a weighted sum of its residual and of those that every n-th block banks, and starts a new
    residual (src/models/kimi-k3.cpp, b11434)."""
    row = _recalled(env, x, "attn_res_score")
    banks = block.layer.index % env.traits.bank_every == 0
    if banks:
        width = env.bank.size + x.size if env.bank else x.size
        env.bank = fresh(env, width, env.bank, x) if env.bank else env.tape.view(x)
    mixed = mixer(env, block, norm(env, row, "attn_norm"), rows_first(env, block))
    x = mixed if banks else env.tape.op(x.label, x.size, x, mixed, key=x.key, inplace=True)
    out = feed_forward(env, block, norm(env, _recalled(env, x, "ffn_res_score"), "ffn_norm"))
    x = env.tape.op(x.label, x.size, x, out, key=x.key, inplace=True)
    if not last:
        return x
    mixed = _recalled(env, x, "attn_res_score")
    env.n = env.n_outputs
    return matrix(env, env.n_embd, mixed, env.outputs)


def _recalled(env: Env, x: Node, name: str) -> Node:
    """The residual mixed with the banked ones by their scores."""
    if not env.bank:
        return x
    count, bank = env.bank.size // x.size, env.bank
    scored = inplace(env, fresh(env, bank.size, bank), w=name, rows=count)
    scored = fresh(env, 4 * count * env.n, scored)
    own = fresh(env, 4 * env.n, inplace(env, fresh(env, x.size, x), w=name))
    shares = inplace(env, fresh(env, scored.size + own.size, scored, own))
    out = matrix(env, env.n_embd, bank, fresh(env, scored.size, env.tape.view(shares)))
    share = fresh(env, own.size, env.tape.view(shares))
    return inplace(env, out, fresh(env, x.size, x, share))


def _is_parallel(block: Block) -> bool:
    """Whether a mixer and an FFN share the one norm of their block."""
    between = _NORMS["ffn"][:-1]
    shared = "attn_norm" in block.sizes and not any(name in block.sizes for name in between)
    return shared and has_mixer(block) and has_feed_forward(block)


def _parallel(env: Env, block: Block, x: Node, *, last: bool) -> Node:
    """Mixer and FFN side by side (src/models/cohere2moe.cpp, b11434)."""
    row, widen = _narrowed(env, block, x, "attn")
    mixed = mixer(env, block, row, rows_first(env, block))
    if last:
        mixed, x = _kept_rows(env, mixed, x)
        row = matrix(env, env.n_embd, row, env.outputs)
    return inplace(env, widen(feed_forward(env, block, row), x), mixed)


def _kept_rows(env: Env, out: Node, x: Node) -> tuple[Node, Node]:
    """The rows that are output, of what a block adds and of the residual."""
    env.n = env.n_outputs
    return matrix(env, env.n_embd, out, env.outputs), matrix(env, env.hyper * env.n_embd, x, env.outputs)


def _fed_forward(env: Env, block: Block, x: Node, *, last: bool) -> Node:
    if "pre_ffw_norm_2" in block.sizes:
        out, widen = side_by_side(env, block, x), _sum_of(env)
    else:
        row, widen = _narrowed(env, block, x, "ffn")
        out = feed_forward(env, block, row)
    if "post_ffw_norm" in block.sizes:
        out = norm(env, out, "post_ffw_norm")
    if last:
        out, x = _kept_rows(env, out, x)
    out = widen(out, x)
    return inplace(env, out, w="layer_output_scale") if "layer_output_scale" in block.sizes else out


def _narrowed(env: Env, block: Block, x: Node, place: str) -> tuple[Node, Widen]:
    """The row that a mixer or FFN reads, and what adds its result to the residual."""
    if env.hyper > 1:
        return mixed_in(env, block, x, place)
    name = next((name for name in _NORMS[place] if name in block.sizes), None)
    return norm(env, x, name), _sum_of(env)


def _sum_of(env: Env) -> Widen:
    def widen(out: Node, x: Node) -> Node:
        terms = (x, out) if env.traits.residual_first else (out, x)
        return env.tape.op(out.label, x.size, *terms, key=x.key, inplace=True)

    return widen
