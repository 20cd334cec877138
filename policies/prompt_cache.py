"""How much RAM llama-server may use to remember prompts."""

from __future__ import annotations

from planner import units
from planner.facts.reading import Source
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, Fate, RuleDoc
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


def _left(problem: Problem, draft: Draft) -> int:
    """RAM beside the model, bytes, if every byte of the file that no GPU can hold were resident."""
    ram = problem.machine.ram
    available = ram.total_bytes if ram.available_bytes is None else ram.available_bytes
    on_gpu = sum(problem.gpu(name).total_bytes for name in draft.values("devices")[0])
    return available - max(problem.model.file_bytes - on_gpu, 0) - dict(draft.reserve).get("host", 0)


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Decide ``cache_ram_mib``."""
    left = _left(problem, draft)
    return Proposal(domains=(("cache_ram_mib", (next((s for s in STEPS_MIB if s * units.MIB <= left), 0),)),))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """Only when the default had to shrink, or the user pinned it."""
    value = chosen.settings.cache_ram_mib
    left = _left(problem, draft)
    short = DEFAULT_MIB * units.MIB - left
    headline = (
        "llama-server's default; the RAM beside the model holds it"
        if value == DEFAULT_MIB
        else f"the model leaves {units.mib(max(left, 0))} of RAM; the default of 8,192 MiB would make it page"
    )
    losers = (
        (Alternative(DEFAULT_MIB, Fate.DOES_NOT_FIT, short, f"{units.mib(short)} short in RAM"),) if short > 0 else ()
    )
    evidence = (Evidence("RAM beside the model", max(left, 0), "bytes", Source.DERIVED),)
    return (Decision("prompt-cache", "cache_ram_mib", value, headline, Confidence.DERIVED, evidence, losers),)


RULE = Rule(DOC, propose, explain)
