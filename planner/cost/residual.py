"""One whole block around its residual stream, and the part of a block that runs on the next device."""

from __future__ import annotations

from collections.abc import Mapping

from planner.cost.blocks import Block, Env, fresh, inplace, matrix, norm
from planner.cost.experts import feed_forward, has_feed_forward, weighted_sum
from planner.cost.mixers import has_mixer, mixer
from planner.cost.tape import Node


def tail_of(env: Env, block: Block) -> Node:
    """The end of a block whose weights are on the host: no weight, so it runs where the next block is.

    The scheduler moves steps without weights up to the device behind them (pass 2 of
    ``ggml_backend_sched_split_graph``, ggml/src/ggml-backend.cpp, b11434).
    """
    residual = env.tape.foreign("activations", 4 * env.n_embd * env.n, key=(env.n_embd, env.n))
    if "ffn_down_exps" in block.shapes and "ffn_down_shexp" not in block.shapes:
        return inplace(env, weighted_sum(env, block), residual)
    out = env.tape.foreign("activations", residual.size, key=residual.key)
    return inplace(env, out, residual)


def block_steps(env: Env, block: Block, x: Node, staged: Mapping[str, int], *, on_cpu: bool, last: bool) -> Node:
    """One block with its residuals; the last one keeps only the rows that are output."""
    mixed = None
    if has_mixer(block):
        mixed = mixer(env, block, inplace(env, env.handed) if env.handed else _narrowed(env, block, x, "attn"))
    if last:
        env.n = env.n_outputs
        mixed = matrix(env, env.n_embd, mixed, env.outputs) if mixed else None
        x = matrix(env, env.hyper * env.n_embd, x, env.outputs)
    residual = _widened(env, mixed, x) if mixed else x
    if not has_feed_forward(block):
        return residual
    out = feed_forward(env, block, _narrowed(env, block, residual, "ffn"), staged, on_cpu=on_cpu)
    return _widened(env, out, residual)


def _narrowed(env: Env, block: Block, x: Node, place: str) -> Node:
    """The row a mixer or FFN reads: the norm of the residual, or the mean of its parallel streams.

    ``build_hc_mix`` (src/models/qwen4exp.cpp) and ``build_hc_pre`` (src/models/deepseek4.cpp), b11434.
    """
    if env.hyper == 1:
        return norm(env, x)
    wide = fresh(env, x.size, x)
    if f"hc_{place}_up" in block.shapes:
        low = inplace(env, matrix(env, block.width(f"hc_{place}_down"), env.tape.view(wide)))
        return matrix(env, env.n_embd, env.tape.view(wide), matrix(env, env.hyper * env.n_embd, low))
    weights = matrix(env, block.width(f"hc_{place}_fn"), env.tape.view(wide))
    return norm(env, matrix(env, env.n_embd, x, weights))


def _widened(env: Env, out: Node, x: Node) -> Node:
    """A residual sum, over all parallel streams if there are several."""
    return inplace(env, out, x) if env.hyper == 1 else matrix(env, env.hyper * env.n_embd, out, x)
