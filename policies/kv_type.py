"""In which type the KV cache is held."""

from __future__ import annotations

from dataclasses import replace

from planner import units
from planner.cost.startable import objections
from planner.errors import OptionError
from planner.facts.reading import Source
from planner.plans.compare import versus
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, Fate, RuleDoc
from planner.plans.memory import total
from planner.plans.plan import Candidate, Caution
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule
from planner.plans.settings import FlashAttn, Settings

PLAIN = ("f16", "f16")
SMALLER = ("q8_0", "q8_0")
SWITCHES = ("kv_unified", "swa_full", "kv_offload")
"""Change the size or the place of a cache; only a pin sets the last two."""
LOSSLESS = frozenset({"f16", "f32", "bf16"})

DOC = RuleDoc(
    id="kv-type",
    title="f16, unless you say otherwise or nothing else can hold the context you asked for",
    settings=("type_k", "type_v"),
    what=(
        "The cache stays f16. --kv TYPE or --kv K:V is obeyed. Only when a context that was asked for fits in no "
        "placement with f16 does the plan take q8_0 for both, and says so as a lossy choice."
    ),
    why=(
        "A quantised cache changes the output; the target is the output of the full model. It makes decode no "
        "faster: a GPU takes longer to unpack its cells than to read them in f16, the more the deeper. So it is "
        "worth its loss only for the memory. Mixed pairs run on CUDA without a kernel of "
        "their own: both sides are converted to f16 first, unless the build was compiled for the pair."
    ),
    numbers=(
        ("logits cosine to f16 at 32K: q8_0/q8_0 .9908, q8_0/q4_0 .9900", "zhaoyilun/moe-working-set-16gb"),
        (
            "decode at depth 16,384: f16 55.9, q8_0/q8_0 52.3 tok/s",
            "qwen3-30b-a3b on one GPU, llama.cpp b11434",
        ),
        ("q8_0 is 8.5 bits per element, q4_0 4.5", "ggml block sizes"),
    ),
    abstains="Never; a model without a KV cache still gets the default printed.",
    references=("src/llama-context.cpp (b11434): V needs flash attention, MLA needs equal types",),
)


def _fits_somewhere(problem: Problem, draft: Draft, evaluate: Evaluate, pair: tuple[str, str]) -> bool:
    """Whether the asked context fits at all: experts on the host, then attention too, then without a GPU."""
    model = problem.model
    base = Settings(
        n_ctx=draft.values("n_ctx")[0],
        n_gpu_layers=model.n_layer + 1,
        n_cpu_moe=model.n_layer,
        n_parallel=draft.values("n_parallel")[0],
        devices=draft.values("devices")[0],
        type_k=pair[0],
        type_v=pair[1],
        cache_ram_mib=0,
        flash_attn=FlashAttn.ON,
        **{name: draft.values(name)[0] for name in SWITCHES if draft.values(name)},
    )
    tries = (base, replace(base, n_gpu_layers=0), replace(base, n_gpu_layers=0, devices=()))
    return any(evaluate(settings).runs for settings in tries)


def _decide(problem: Problem, draft: Draft, evaluate: Evaluate) -> tuple[str, str]:
    work = problem.workload
    if work.kv:
        return work.kv
    short = work.n_ctx is not None and not _fits_somewhere(problem, draft, evaluate, PLAIN)
    return SMALLER if short and _fits_somewhere(problem, draft, evaluate, SMALLER) else PLAIN


def _obeyed(problem: Problem, draft: Draft, pair: tuple[str, str]) -> None:
    """Refuse a pair that llama.cpp would not start with.

    Raises:
        OptionError: with what the model needs instead.
    """
    plain = Settings(n_ctx=draft.values("n_ctx")[0], n_gpu_layers=0, type_k=pair[0], type_v=pair[1])
    found = objections(problem.model, plain)
    if found:
        raise OptionError(f"--kv {':'.join(pair)}", found=found[0], advice="--kv f16 always works")


def _without_kernel(problem: Problem, pair: tuple[str, str]) -> tuple[Caution, ...]:
    engine = problem.machine.engine
    known = engine.kv_pairs_on_gpu if engine else ()
    if not known or ":".join(pair) in known or not problem.machine.gpus:
        return ()
    message = (
        f"the build has no kernel for {':'.join(pair)} on the GPU (it has {', '.join(known)}): attention is slower, "
        "or runs on the CPU in older builds."
    )
    return (Caution("kv-pair-without-kernel", message),)


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Decide ``type_k`` and ``type_v``."""
    pair = _decide(problem, draft, evaluate)
    _obeyed(problem, draft, pair)
    cautions = _without_kernel(problem, pair)
    if pair != PLAIN and problem.workload.kv is None:
        cautions += (
            Caution(
                "lossy-kv",
                f"with f16 the context of {units.count(draft.values('n_ctx')[0])} fits nowhere; q8_0 is used, which "
                "changes the output slightly. A shorter --ctx keeps f16.",
            ),
        )
    return Proposal(domains=(("type_k", (pair[0],)), ("type_v", (pair[1],))), cautions=cautions)


def _held(candidate: Candidate) -> int:
    """Bytes of all caches, on devices and in RAM."""
    memory = candidate.memory
    return total(memory.host.context) + sum(total(device.context) for device in memory.devices)


def _smaller(problem: Problem, chosen: Candidate, evaluate: Evaluate) -> Alternative:
    """What a q8_0 cache would free, or why llama.cpp would not start with it."""
    settings = replace(chosen.settings, type_k="q8_0", type_v="q8_0")
    refused = objections(problem.model, replace(settings, flash_attn=FlashAttn.ON))
    if refused:
        return Alternative("q8_0", Fate.UNSUPPORTED, None, f"llama.cpp would not start: {refused[0]}")
    saved = max(_held(chosen) - _held(evaluate(settings)), 0)
    detail = f"K and V both in q8_0 would free {units.mib(saved)} together, and change the output"
    return Alternative("q8_0", Fate.LOSSY, None, detail)


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """One decision per side; the other types as lossy alternatives with what they would free."""
    settings, work = chosen.settings, problem.workload
    lossless = {settings.type_k, settings.type_v} <= LOSSLESS
    if work.kv:
        headline, source = (
            "asked for" + ("" if lossless else "; quantised: changes the output slightly"),
            Source.USER,
        )
    elif lossless:
        headline, source = "exact: a quantised cache changes the output", Source.DERIVED
    else:
        headline, source = "f16 cannot hold the context that was asked for", Source.DERIVED
    evidence = (Evidence("KV types asked", ":".join(work.kv) if work.kv else "auto", "K:V", source),)
    losers = []
    if lossless:
        losers.append(_smaller(problem, chosen, evaluate))
    elif work.kv is None:
        losers.append(versus("f16", evaluate(replace(settings, type_k="f16", type_v="f16")), chosen, work.goal))
    return tuple(
        Decision("kv-type", name, value, headline, Confidence.DERIVED, evidence, tuple(losers), lossless)
        for name, value in (("type_k", settings.type_k), ("type_v", settings.type_v))
    )


RULE = Rule(DOC, propose, explain)
