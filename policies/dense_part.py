"""How many layers, attention and all, live on the GPU."""

from __future__ import annotations

from dataclasses import replace

from planner import units
from planner.facts.model import Role
from planner.facts.reading import Source
from planner.plans.compare import versus
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, RuleDoc
from planner.plans.plan import Candidate
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule

NOT_DENSE = frozenset({Role.EXPERT, Role.EMBEDDING, Role.LOOKUP})

DOC = RuleDoc(
    id="dense-part",
    title="Attention, router, shared experts and norms first: all layers on the GPU before any expert",
    settings=("n_gpu_layers",),
    what=(
        "Every layer goes to the GPU (-ngl counts the output layer as one more). Of a mixture of experts the "
        "routed experts leave the GPU first. Only when the rest still does not fit with all experts on the host "
        "do whole layers go to the CPU, first layers first. A dense model gives up whole layers at once."
    ),
    why=("Everything but the routed experts is read in every token, so a GiB of it on the GPU saves most."),
    numbers=(
        (
            "coarse -ngl 10: 6.54 tok/s, dense part on the GPU and experts on the host: 15.1",
            "one 16 GB card, 177 B MoE",
        ),
    ),
    abstains="Never: without a GPU it is -ngl 0.",
    references=("src/llama-model.cpp (b11312): layers to devices", "ggml-org/llama.cpp#15136, #15263"),
)


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Open ``n_gpu_layers`` from all to none; the search takes the first that fits."""
    most = problem.model.n_layer + 1
    values = tuple(range(most, -1, -1)) if draft.values("devices")[0] else (0,)
    return Proposal(domains=(("n_gpu_layers", values),))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """The number of layers, and the split over several devices."""
    settings, model = chosen.settings, problem.model
    if not settings.devices:
        found = len(problem.machine.gpus)
        headline = (
            "no GPU takes part: the CPU computes all layers" if found else "no GPU was found: the CPU computes all"
        )
        seen = Evidence("GPUs found", found, "devices", Source.REPORTED)
        return (Decision("dense-part", "n_gpu_layers", 0, headline, Confidence.DERIVED, (seen,)),)
    dense = sum(tensor.n_bytes for tensor in model.tensors if tensor.role not in NOT_DENSE)
    evidence = (
        Evidence("blocks", model.n_layer, "blocks", Source.REPORTED),
        Evidence("bytes read in every token (no routed experts)", dense, "bytes", Source.DERIVED),
    )
    most = model.n_layer + 1
    if settings.n_gpu_layers == most:
        headline = f"all {model.n_layer} blocks and the output: {units.mib(dense)} are read in every token"
        losers: tuple[Alternative, ...] = ()
    else:
        headline = f"{settings.n_gpu_layers} of {most} layers: the rest does not fit beside the headroom"
        more = replace(settings, n_gpu_layers=settings.n_gpu_layers + 1)
        losers = (versus(more.n_gpu_layers, evaluate(more), chosen, problem.workload.goal),)
    return (
        Decision("dense-part", "n_gpu_layers", settings.n_gpu_layers, headline, Confidence.DERIVED, evidence, losers),
    )


RULE = Rule(DOC, propose, explain)
