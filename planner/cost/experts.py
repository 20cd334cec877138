"""The steps of a feed-forward block: dense, routed experts, shared expert.

Mirrors ``build_ffn`` and ``build_moe_ffn`` (src/llama-graph.cpp, b11434).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.cost.blocks import Block, Env, fresh, inplace, matrix, part
from planner.cost.tape import Node

_FUSED_MAX_EXPERTS: Final = 15
"""Most experts per token that CUDA adds up in one fused step (``MOE_WEIGHTED_REDUCTION_MAX_EXPERTS``, b11434)."""


def has_feed_forward(block: Block) -> bool:
    return any(name in block.shapes for name in ("ffn_down_exps", "ffn_down_shexp", "ffn_down"))


def feed_forward(env: Env, block: Block, x: Node, staged: Mapping[str, int], *, on_cpu: bool) -> Node:
    """All feed-forward parts of a block, added up.

    Args:
        staged: bytes of host tensors by name; each opens a split of this device.
        on_cpu: the CPU multiplies with the routed experts; only their weighted sum runs here.
    """
    parts = []
    if "ffn_down_exps" in block.shapes:
        parts.append(routed(env, block, x, staged, on_cpu=on_cpu))
    for suffix in ("_shexp", ""):
        if f"ffn_down{suffix}" in block.shapes:
            parts.append(dense(env, block, x, suffix))
    out, *others = parts
    for other in others:
        out = inplace(env, out, other)
    return out


def dense(env: Env, block: Block, x: Node, suffix: str = "") -> Node:
    """Up, gate, activation, down; ``suffix`` is ``_shexp`` for a shared expert."""
    width = block.width(f"ffn_up{suffix}")
    up = matrix(env, width, x)
    if block.width(f"ffn_gate{suffix}"):
        act = matrix(env, width, matrix(env, width, x), up)
    elif block.shapes[f"ffn_down{suffix}"][0] != width:
        act = matrix(env, width // 2, up)
    else:
        act = inplace(env, inplace(env, up))
    out = matrix(env, env.n_embd, act)
    if suffix and "ffn_gate_inp_shexp" in block.shapes:
        out = inplace(env, out, inplace(env, fresh(env, 4 * env.n, x)))
    return out


def routed(env: Env, block: Block, x: Node, staged: Mapping[str, int], *, on_cpu: bool) -> Node:
    """Router, routed experts and their weighted sum."""
    k, tape = block.layer.n_expert_used, env.tape
    width = block.shapes["ffn_down_exps"][1]
    chosen, weights = _route(env, block, x)
    if on_cpu:
        out = tape.foreign("expert results", 4 * k * width * env.n, key=("down", env.n))
        tape.split()
    else:
        narrow = matrix(env, block.width("ffn_latent_down"), x) if block.width("ffn_latent_down") else x
        act = _activated(env, block, tape.view(narrow), chosen, staged)
        out = _multiply(env, block, "ffn_down_exps", width, act, chosen, staged)
    keep = env.fused_sum and 1 < k <= _FUSED_MAX_EXPERTS
    scaled = tape.op("expert results", out.size, out, weights, key=out.key, inplace=not keep)
    parts = [part(env, scaled, width) for _ in range(k)]
    if k == 1:
        return matrix(env, width, parts[0])
    total = matrix(env, width, parts[0], parts[1])
    for item in parts[2:]:
        total = inplace(env, total, item)
    if keep:
        tape.store(out, weights)
    return matrix(env, env.n_embd, total) if block.width("ffn_latent_up") else total


def experts_only(env: Env, block: Block, staged: Mapping[str, int]) -> None:
    """The multiplies with routed experts of a block that lives elsewhere; rows come in, results go out."""
    x = env.tape.foreign("activations", 4 * env.n_embd * env.n)
    chosen = env.tape.foreign("inputs", 4 * block.shapes["ffn_gate_inp"][1] * env.n)
    env.tape.split()
    act = _activated(env, block, env.tape.view(x), chosen, staged)
    env.tape.store(_multiply(env, block, "ffn_down_exps", block.shapes["ffn_down_exps"][1], act, chosen, staged))


def weighted_sum(env: Env, block: Block) -> Node:
    """Only the sum over a block's routed experts, whose results and weights come from elsewhere."""
    k, width = block.layer.n_expert_used, block.shapes["ffn_down_exps"][1]
    results = env.tape.foreign("expert results", 4 * k * width * env.n, key=("down", env.n))
    weights = env.tape.foreign("inputs", 4 * k * env.n)
    scaled = env.tape.op("expert results", results.size, results, weights, key=results.key, inplace=True)
    total = matrix(env, width, *(part(env, scaled, width) for _ in range(min(k, 2))))
    env.tape.store(part(env, scaled, width))
    return total


def _route(env: Env, block: Block, x: Node) -> tuple[Node, Node]:
    """Chosen experts and their weights."""
    k, n_expert = block.layer.n_expert_used, block.shapes["ffn_gate_inp"][1]
    probs = inplace(env, matrix(env, n_expert, x))
    if any(name.startswith("exp_probs_b") for name in block.shapes):
        scores = _groups(env, fresh(env, probs.size, probs))
    else:
        scores = probs
    chosen = env.tape.view(fresh(env, 4 * n_expert * env.n, scores))
    weights = fresh(env, 4 * k * env.n, env.tape.view(probs), chosen)
    return chosen, inplace(env, weights, fresh(env, 4 * env.n, weights))


def _groups(env: Env, scores: Node) -> Node:
    """Scores with all but the best expert groups masked out, where the model routes by groups."""
    if env.n_groups <= 1:
        return scores
    tape, size = env.tape, 4 * env.n * env.n_groups
    best = fresh(env, 2 * size, tape.view(scores), tape.view(fresh(env, scores.size, tape.view(scores))))
    order = fresh(env, size, fresh(env, size, tape.view(best)))
    picked = fresh(env, scores.size // env.n_groups, tape.view(scores), tape.view(order))
    return tape.view(fresh(env, scores.size, tape.view(scores)), picked, tape.view(order))


def _multiply(env: Env, block: Block, name: str, width: int, x: Node, chosen: Node, staged: Mapping[str, int]) -> Node:
    """One multiply with all experts of a block, and its bias."""
    size = 4 * block.layer.n_expert_used * width * env.n
    label = "expert results" if "down" in name else "expert activations"
    node = env.tape.op(label, size, x, chosen, key=(name, env.n), staged=staged.get(name, 0))
    if f"{name}.bias" in block.shapes:
        bias = staged.get(f"{name}.bias", 0)
        node = env.tape.op(label, size, node, chosen, key=(name, env.n), inplace=True, staged=bias)
    return node


def _activated(env: Env, block: Block, x: Node, chosen: Node, staged: Mapping[str, int]) -> Node:
    """Gate and up of the routed experts, multiplied: n_ff_exp per expert and token."""
    if "ffn_gate_up_exps" in block.shapes:
        width = block.shapes["ffn_gate_up_exps"][1]
        both = _multiply(env, block, "ffn_gate_up_exps", width, x, chosen, staged)
        return fresh(env, both.size // 2, part(env, both, 1), part(env, both, 1), label="expert activations")
    width = block.shapes["ffn_up_exps"][1]
    up = _multiply(env, block, "ffn_up_exps", width, x, chosen, staged)
    if "ffn_gate_exps" not in block.shapes:
        return inplace(env, inplace(env, up))
    gate = _multiply(env, block, "ffn_gate_exps", width, x, chosen, staged)
    return fresh(env, up.size, gate, up, label="expert activations")
