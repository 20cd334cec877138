"""The steps of a feed-forward block: dense, routed experts, shared expert.

Mirrors ``build_ffn`` and ``build_moe_ffn`` (src/llama-graph.cpp, b11434).
"""

from __future__ import annotations

from typing import Final

from planner.cost.blocks import PLAIN_TYPES, Block
from planner.cost.draw import Env, fresh, inplace, matrix, norm, part
from planner.cost.tape import HOST, Node

_FUSED_MAX_EXPERTS: Final = 15
"""Most experts per token that CUDA adds up in one fused step (``MOE_WEIGHTED_REDUCTION_MAX_EXPERTS``, b11434)."""


def has_feed_forward(block: Block) -> bool:
    return any(name in block.shapes for name in ("ffn_down_exps", "ffn_down_shexp", "ffn_down"))


def feed_forward(env: Env, block: Block, x: Node) -> Node:
    """All feed-forward parts of a block, added up."""
    parts = []
    early: dict[str, Node] = {}
    if "ffn_down_exps" in block.shapes:
        parts.append(routed(env, block, x, x, early))
    for suffix in ("_shexp", ""):
        if f"ffn_down{suffix}" in block.shapes:
            parts.append(dense(env, block, x, suffix, early.get(suffix)))
    out, *others = parts
    for other in others:
        out = inplace(env, out, other)
    return out


def side_by_side(env: Env, block: Block, x: Node) -> Node:
    """Routed experts beside a dense FFN, each with norms of its own (src/models/gemma4.cpp, b11434)."""
    routed_on = inplace(env, fresh(env, x.size, x), w="ffn_gate_inp.scale")
    sparse = routed(env, block, norm(env, x, "pre_ffw_norm_2"), routed_on, {})
    plain = norm(env, dense(env, block, norm(env, x, "ffn_norm")), "post_ffw_norm_1")
    return inplace(env, plain, norm(env, sparse, "post_ffw_norm_2"))


def dense(env: Env, block: Block, x: Node, suffix: str = "", act: Node | None = None) -> Node:
    """Up, gate, activation, down; ``suffix`` is ``_shexp`` for a shared expert.

    Args:
        act: the activation, if it has been drawn.
    """
    out = matrix(env, env.n_embd, act or _gated(env, block, x, suffix), w=f"ffn_down{suffix}")
    if suffix and "ffn_gate_inp_shexp" in block.shapes:
        out = inplace(env, out, inplace(env, fresh(env, 4 * env.n, x, w="ffn_gate_inp_shexp")))
    return out


def _gated(env: Env, block: Block, x: Node, suffix: str) -> Node:
    width, up, gate = block.width(f"ffn_up{suffix}"), f"ffn_up{suffix}", f"ffn_gate{suffix}"
    if block.width(gate):
        return matrix(env, width, matrix(env, width, x, w=gate), matrix(env, width, x, w=up))
    if block.shapes[f"ffn_down{suffix}"][0] != width:
        return matrix(env, width // 2, matrix(env, width, x, w=up))
    return inplace(env, inplace(env, matrix(env, width, x, w=up)))


def _fuses_shared(env: Env, block: Block) -> bool:
    """Whether CUDA computes a shared expert right behind the routed ones' activation: same shape and type, gates
    on both, all on the device (``ggml_cuda_match_shared_expert``, ggml/src/ggml-cuda/ggml-cuda.cu, b11434)."""
    names = [f"ffn_{part}{suffix}" for part in ("up", "gate") for suffix in ("_exps", "_shexp")]
    if env.place.device not in env.cuda or not all(name in block.shapes for name in names):
        return False
    alike = len({(block.shapes[name][:2], block.types[name]) for name in names}) == 1
    return alike and env.together(*names) and block.types[names[0]] not in PLAIN_TYPES


def routed(env: Env, block: Block, x: Node, routed_on: Node, early: dict[str, Node]) -> Node:
    """Router, routed experts and their weighted sum.

    Args:
        routed_on: what the router reads.
        early: takes the activation of a shared expert that is computed in between.
    """
    k, tape = block.layer.n_expert_used, env.tape
    width = block.shapes["ffn_down_exps"][1]
    chosen, weights, kept = _route(env, block, routed_on)
    narrow, latent = x, _latent(block)
    if latent:
        narrow = matrix(env, block.width(f"{latent}_down"), x, w=f"{latent}_down")
    rows = tape.view(narrow)
    tape.keep(*kept)
    first = env.traits.weights_first
    if first:
        repeated = fresh(env, 4 * k * env.n_embd * env.n, rows)
        rows = inplace(env, repeated, weights, rows=k)
    act = _activated(env, block, rows, chosen)
    if _fuses_shared(env, block):
        early["_shexp"] = _gated(env, block, x, "_shexp")
        tape.keep(rows, chosen)
    raw = _multiply(env, block, "ffn_down_exps", width, act, chosen)
    out, factors = _scaled(env, block, "ffn_down_exps", raw, chosen)
    scaled = out if first else tape.op("expert results", out.size, out, weights, key=out.key, inplace=True)
    parts = [part(env, scaled, width) for _ in range(k)]
    total = matrix(env, width, *parts[:2])
    for item in parts[2:]:
        total = inplace(env, total, item)
    if 1 < k <= _FUSED_MAX_EXPERTS and not first:
        tape.keep(raw, weights, *factors)
    tape.expand()
    if f"{latent}_norm" in block.sizes:
        total = norm(env, total, f"{latent}_norm")
    return matrix(env, env.n_embd, total, w=f"{latent}_up") if latent else total


def _latent(block: Block) -> str | None:
    """Name of the projections around experts that work on a narrower row."""
    return next((name for name in ("ffn_latent", "ffn_routed") if block.width(f"{name}_down")), None)


def _route(env: Env, block: Block, x: Node) -> tuple[Node, Node, tuple[Node, ...]]:
    """Chosen experts, their weights, and what CUDA keeps until the next step if it fuses all this."""
    k, n_expert, tape = block.layer.n_expert_used, block.shapes["ffn_gate_inp"][1], env.tape
    logits = matrix(env, n_expert, x, w="ffn_gate_inp")
    if "ffn_gate_inp.bias" in block.shapes:
        logits = inplace(env, logits, w="ffn_gate_inp.bias")
    gate = inplace(env, logits)
    probs = inplace(env, gate) if env.traits.gate_steps > 1 else gate
    rows = tape.view(probs)
    if "ffn_gate_tid2eid" in block.shapes:  # experts by token, not by score
        tokens = env.given("tokens", 4 * env.n)
        chosen = tape.op("inputs", 4 * k * env.n, tokens, weight=env.weight("ffn_gate_tid2eid"))
        return chosen, _expert_weights(env, block, rows, chosen)[0], ()
    bias = next((name for name in block.shapes if name.startswith("exp_probs_b")), None)
    scores = fresh(env, probs.size, probs, w=bias) if bias else probs
    order = fresh(env, 4 * n_expert * env.n, _groups(env, scores) if bias else scores)
    chosen = tape.view(order)
    weights, steps = _expert_weights(env, block, rows, chosen)
    fused = _fused_router(n_expert) and env.traits.n_groups <= 1 and "ffn_gate_inp.bias" not in block.shapes
    kept = (logits, gate, probs, rows, scores, order, chosen, *steps) if fused else ()
    return chosen, weights, kept


def _expert_weights(env: Env, block: Block, rows: Node, chosen: Node) -> tuple[Node, tuple[Node, ...]]:
    """Weights of the chosen experts, and all steps to them."""
    tape = env.tape
    picked = fresh(env, 4 * block.layer.n_expert_used * env.n, rows, chosen)
    steps: tuple[Node, ...] = (picked,)
    weights = tape.view(picked) if env.traits.normed_weights else picked
    if env.traits.normed_weights:
        total = fresh(env, 4 * env.n, weights)
        share = inplace(env, total)
        quotient = fresh(env, picked.size, weights, share)
        steps = (picked, weights, total, share, quotient)
        weights = tape.view(quotient)
    if env.traits.scaled_weights:
        weights = tape.op(weights.label, picked.size, weights, key=weights.key, inplace=True)
    return weights, (*steps, weights)


def _fused_router(n_expert: int) -> bool:
    """Expert counts that CUDA routes in one step (``ggml_cuda_should_use_topk_moe``, ggml-cuda/topk-moe.cu, b11434)."""
    return n_expert in (288, 576) or (n_expert <= 512 and not n_expert & (n_expert - 1))


def _groups(env: Env, scores: Node) -> Node:
    """Scores with all but the best expert groups masked out, where the model routes by groups."""
    if env.traits.n_groups <= 1:
        return scores
    tape, size = env.tape, 4 * env.n * env.traits.n_groups
    best = fresh(env, 2 * size, tape.view(scores), tape.view(fresh(env, scores.size, tape.view(scores))))
    order = fresh(env, size, fresh(env, size, tape.view(best)))
    picked = fresh(env, scores.size // env.traits.n_groups, tape.view(scores), tape.view(order))
    return tape.write(fresh(env, scores.size, tape.view(scores)), picked, tape.view(order))


def _multiply(env: Env, block: Block, name: str, width: int, x: Node, chosen: Node) -> Node:
    """One multiply with all experts of a block, and its bias."""
    k = block.layer.n_expert_used
    size = 4 * k * width * env.n
    label = "expert results" if "down" in name else "expert activations"
    node = env.tape.op(label, size, x, chosen, key=(name, env.n), weight=env.weight(name), batch=env.n)
    if f"{name}.bias" in block.shapes:
        node = inplace(env, node, chosen, w=f"{name}.bias", rows=k)
    return node


def _scaled(env: Env, block: Block, name: str, node: Node, chosen: Node) -> tuple[Node, tuple[Node, ...]]:
    """Results of experts whose weights have one factor per expert, and the chosen factors.

    The factors are read through a view, by which the scheduler does not know them as weights.
    """
    if f"{name}.scale" not in block.shapes:
        return node, ()
    k, n_expert = block.layer.n_expert_used, block.shapes[f"{name}.scale"][0]
    home = env.place.device if env.together(f"{name}.scale") else HOST
    factors = env.tape.view(env.tape.stored("inputs", 4 * n_expert, home))
    picked = fresh(env, 4 * k * env.n, env.tape.view(fresh(env, 4 * n_expert * env.n, factors)), chosen)
    return inplace(env, node, picked, rows=k), (picked,)


def _activated(env: Env, block: Block, x: Node, chosen: Node) -> Node:
    """Gate and up of the routed experts, multiplied: n_ff_exp per expert and token."""
    if "ffn_gate_up_exps" in block.shapes:
        width = block.shapes["ffn_gate_up_exps"][1]
        both = _multiply(env, block, "ffn_gate_up_exps", width, x, chosen)
        halves = (env.tape.view(both), env.tape.view(both))
        return fresh(env, both.size // 2, *halves, label="expert activations")
    width = block.shapes["ffn_up_exps"][1]
    if "ffn_gate_exps" not in block.shapes:
        return inplace(env, inplace(env, _multiply(env, block, "ffn_up_exps", width, x, chosen)))
    gate = _multiply(env, block, "ffn_gate_exps", width, x, chosen)
    up = _multiply(env, block, "ffn_up_exps", width, x, chosen)
    return fresh(env, up.size, gate, up, label="expert activations")
