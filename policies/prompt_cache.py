"""How much RAM llama-server may use to remember prompts."""

from __future__ import annotations

from dataclasses import replace

from planner.facts.reading import Source
from planner.plans.compare import versus
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, RuleDoc
from planner.plans.plan import Candidate
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule

DEFAULT_MIB = 8192
STEPS_MIB = (8192, 4096, 2048, 1024, 0)

DOC = RuleDoc(
    id="prompt-cache",
    title="llama-server's prompt cache only as large as the RAM that the model leaves",
    settings=("cache_ram_mib",),
    what=(
        "The server keeps up to 8,192 MiB of earlier prompts in RAM. The plan keeps that where the RAM holds it "
        "beside the model, and steps down to 4,096, 2,048, 1,024 or 0 MiB where it does not."
    ),
    why=(
        "The cache is in no estimate of llama.cpp and fills up only after many requests: a plan that ignores it "
        "pages or dies after an hour. It changes speed, never the output."
    ),
    numbers=(("8,192 MiB", "common/arg.cpp (b11549), --cache-ram default"),),
    abstains="The default fits: no flag is needed, and the default is printed for the record.",
    references=("unslothai/unsloth#11073: cache and checkpoints exhaust RAM",),
)


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Open ``cache_ram_mib``; the search raises it as far as RAM holds it beside the rest."""
    return Proposal(domains=(("cache_ram_mib", STEPS_MIB),))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """The size, and what the default would have done."""
    settings, host = chosen.settings, chosen.memory.host
    value = settings.cache_ram_mib
    evidence = [Evidence("RAM predicted, this cache included", host.predicted_bytes, "bytes", Source.DERIVED)]
    if host.available_bytes is not None:
        evidence.append(Evidence("RAM available", host.available_bytes, "bytes", Source.REPORTED))
    losers: tuple[Alternative, ...] = ()
    if value == DEFAULT_MIB:
        headline = "llama-server's default; RAM holds it beside the model"
    else:
        usual = evaluate(replace(settings, cache_ram_mib=DEFAULT_MIB))
        headline = "what RAM leaves beside the model; the default of 8,192 MiB would make it page or fail"
        losers = (versus(DEFAULT_MIB, usual, chosen, problem.workload.goal),)
    return (Decision("prompt-cache", "cache_ram_mib", value, headline, Confidence.DERIVED, tuple(evidence), losers),)


RULE = Rule(DOC, propose, explain)
