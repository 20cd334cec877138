"""Flash attention on or off."""

from __future__ import annotations

from dataclasses import replace

from planner.cost.startable import FLASH_ATTN_FORCED_OFF
from planner.facts.machine import Backend
from planner.facts.model import AttentionKind, Layer
from planner.facts.reading import Source
from planner.plans.compare import versus
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, RuleDoc
from planner.plans.plan import Candidate
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule
from planner.plans.settings import FlashAttn

SAME = frozenset({40, 64, 72, 80, 96, 112, 128, 256, 512})
PAIRS = {(192, 128): 8, (320, 256): 32, (576, 512): 1}
"""Head sizes K/V with a kernel of their own, and what their query heads per KV head must be a multiple of."""
WITH_CUDA_KERNELS = frozenset({Backend.CUDA, Backend.ROCM})

DOC = RuleDoc(
    id="attention",
    title="Flash attention on wherever the device has a kernel for the head size",
    settings=("flash_attn",),
    what=(
        "On, unless the heads of the model have a size without a CUDA kernel or llama.cpp turns it off for the "
        "architecture itself. Printed as on or off, not auto: auto may decide otherwise than the memory was "
        "planned for."
    ),
    why=(
        "Without flash attention the scores of every head are held for the whole ubatch: 4 bytes x context x "
        "ubatch x heads. With a head size that has no kernel, on would move attention to the CPU."
    ),
    numbers=(
        (
            "head sizes 40 64 72 80 96 112 128 256 512, and 192/128, 320/256, 576/512",
            "ggml-cuda/fattn.cu (b11312)",
        ),
        ("8,710 MiB of scores at 128k and ubatch 1024", "thecodacus/llama.cpp#3"),
    ),
    abstains="No block has attention: the flag stays at auto.",
    references=("src/llama-context.cpp (b11434): grok is forced off, quantised V requires it",),
)


def _heads(layer: Layer) -> tuple[int, int]:
    """Head sizes (K, V) that the attention kernel sees; MLA attends in its latent space."""
    if layer.kind is AttentionKind.MLA:
        return layer.n_embd_k, layer.n_embd_v or layer.head_v
    return layer.head_k, layer.head_v


def _unsupported(problem: Problem, draft: Draft) -> str | None:
    """Why flash attention cannot be on, or None."""
    model = problem.model
    if model.arch in FLASH_ATTN_FORCED_OFF:
        return f"llama.cpp turns it off for {model.arch}"
    backends = {problem.gpu(name).backend for name in draft.values("devices")[0]}
    if not backends & WITH_CUDA_KERNELS:
        return None
    for layer in model.layers:
        k, v = _heads(layer)
        has_cache = layer.n_embd_k > 0 and layer.kind not in (AttentionKind.RECURRENT, AttentionKind.NONE)
        mla = layer.kind in (AttentionKind.MLA, AttentionKind.COMPRESSED)
        ratio = layer.n_head // max(layer.n_head_kv, 1)
        paired = (k, v) in PAIRS and ratio % PAIRS[k, v] == 0
        if has_cache and not mla and not (k == v and k in SAME) and not paired:
            return f"no CUDA kernel for {ratio} query heads of {k}/{v} per KV head"
    return None


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Decide ``flash_attn``."""
    if not any(layer.n_embd_k for layer in problem.model.layers):
        return Proposal(domains=(("flash_attn", (FlashAttn.AUTO,)),))
    value = FlashAttn.OFF if _unsupported(problem, draft) else FlashAttn.ON
    return Proposal(domains=(("flash_attn", (value,)),))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """Why on or off, and what the other would cost."""
    value = chosen.settings.flash_attn
    if value is FlashAttn.AUTO:
        return ()
    reason = _unsupported(problem, draft)
    other = FlashAttn.OFF if value is FlashAttn.ON else FlashAttn.ON
    sizes = sorted({_heads(layer) for layer in problem.model.layers if layer.n_embd_k})
    evidence = tuple(Evidence("head size K/V", f"{k}/{v}", "elements", Source.REPORTED) for k, v in sizes)
    losers: tuple[Alternative, ...] = ()
    if value is FlashAttn.ON:
        losers = (versus("off", evaluate(replace(chosen.settings, flash_attn=other)), chosen, problem.workload.goal),)
    headline = reason or "attention without a matrix of scores: less memory, faster at depth"
    return (Decision("attention", "flash_attn", value.value, headline, Confidence.DERIVED, evidence, losers),)


RULE = Rule(DOC, propose, explain)
