"""Where the multiplies of host experts run in prefill."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from planner.cost.engines import engine_traits
from planner.cost.host_share import computes_on_host
from planner.facts.machine import Backend
from planner.facts.reading import Source
from planner.plans.compare import cost, given, versus
from planner.plans.decision import Confidence, Decision, Evidence, RuleDoc
from planner.plans.plan import Candidate
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule

DOC = RuleDoc(
    id="op-offload",
    title="The GPU computes the experts that live in RAM in prefill, unless the copy costs more than the CPU",
    settings=("op_offload",),
    what=(
        "llama.cpp copies the experts of a batch of 32 tokens or more to the first GPU and multiplies there. That is "
        "kept, unless with all experts in RAM the CPU alone is predicted to compute the prompt in no more than 1.25 "
        "times the time; then --no-op-offload, which frees the buffer of the copies, is compared with it for every "
        "placement. RPC devices take no such copies. ik_llama.cpp counts "
        "32 tokens per expert, not in all."
    ),
    why=(
        "The copy costs the bytes of the experts over the link once per ubatch, whatever the ubatch; the CPU pays per "
        "token. With long prompts the copy is shared by thousands of tokens. With prompts of some tens of tokens, a "
        "slow link or a GPU that shares RAM it can be the other way round. Decode is not affected: its batches are "
        "smaller than 32."
    ),
    numbers=(
        ("on 10,202, off 516 tok/s prefill at ubatch 2048", "qwen3-30b-a3b, H200, llama.cpp b11434"),
        ("on 279, off 70 tok/s", "public report, 2 x RTX 4090D, two-socket server"),
        ("from 32 tokens on", "ggml/src/ggml-cuda/ggml-cuda.cu (b11434), GGML_OP_OFFLOAD_MIN_BATCH"),
    ),
    abstains="No GPU takes part, or the file has no routed experts: llama.cpp's default is not touched.",
    references=(
        "ggml/src/ggml-backend.cpp (b11434): ggml_backend_sched_backend_id_from_cur",
        "ikawrakow/ik_llama.cpp#520",
    ),
)


NEAR = 1.25
"""Prompts that differ by no more are left to the search: the room of the copies' buffer may decide."""


def _applies(problem: Problem, devices: tuple[str, ...]) -> bool:
    return bool(devices) and problem.model.is_moe and problem.gpu(devices[0]).backend is not Backend.RPC


def _smallest(problem: Problem) -> int:
    """Tokens from which on the engine at hand copies experts."""
    model = problem.model
    return ceil(engine_traits(problem.machine.engine).offload_tokens(model.n_expert_used / model.n_expert))


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """On; both where the CPU is faster with all experts in RAM, or nearly."""
    if not _applies(problem, draft.values("devices")[0]):
        return Proposal(domains=(("op_offload", (True,)),))
    in_ram = replace(draft.settings(), n_cpu_moe=draft.values("n_cpu_moe")[-1])
    prefill, without = (evaluate(replace(in_ram, op_offload=flag)).speed.prefill_tps.mid for flag in (True, False))
    return Proposal(domains=(("op_offload", (True, False) if without * NEAR >= prefill else (True,)),))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """Which side computes host experts, and what the other would take."""
    settings, work = chosen.settings, problem.workload
    if not _applies(problem, settings.devices) or not computes_on_host(problem.model, settings):
        return ()
    other = evaluate(replace(settings, op_offload=not settings.op_offload))
    losers = (versus(not settings.op_offload, other, chosen, work.goal),)
    if settings.op_offload:
        headline = f"batches of {_smallest(problem):,} tokens or more copy experts to {settings.devices[0]}"
    elif cost(other, work.goal) >= cost(chosen, work.goal):
        headline = "the CPU computes its experts faster than the link brings them to the GPU"
    else:
        headline = "the buffer of copied experts would take the room of more than copying gains"
    evidence = (
        Evidence("prompt", work.prompt_tokens, "tokens", given("prompt_tokens", work=work)),
        Evidence("ubatch", settings.n_ubatch, "tokens", Source.DERIVED),
    )
    return (Decision("op-offload", "op_offload", settings.op_offload, headline, Confidence.DERIVED, evidence, losers),)


RULE = Rule(DOC, propose, explain)
