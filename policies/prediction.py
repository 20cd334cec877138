"""Whether the model drafts its own next tokens (multi-token prediction)."""

from __future__ import annotations

from dataclasses import replace

from planner.cost.drafting import ACCEPTED_TOKENS
from planner.cost.shape import DRAFT_N_MAX, MTP
from planner.facts.reading import Source
from planner.plans.compare import EQUAL, versus
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, Fate, RuleDoc
from planner.plans.plan import Candidate
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule

SINCE = 11312
"""The first build whose source was read; it came with ggml-org/llama.cpp#22673."""

FLAG = "--spec-type"

DOC = RuleDoc(
    id="prediction",
    title="Multi-token prediction where the file has the head, the build can, and the experts are near",
    settings=("spec_type",),
    what=(
        "A file with prediction blocks and a llama-server that knows draft-mtp open --spec-type draft-mtp. It is taken "
        "when a turn is predicted to be faster with it, its second context, cache and compute buffer counted: a pass "
        f"over {1 + DRAFT_N_MAX} tokens is taken to yield {ACCEPTED_TOKENS:g}."
    ),
    why=(
        "One pass checks several drafted tokens: dense weights are read once for all of them, but each takes experts "
        "of its own. On a GPU that holds the experts this wins; with experts in RAM a pass reads three times as many "
        "of them, and loses. The answer is the same: a drafted token counts only where the model agrees."
    ),
    numbers=(
        ("120.0 to 148.3 tok/s", "Qwen3.6-35B-A3B on an RTX 3090, public report"),
        ("49.5 to 69.4 tok/s", "the same on a Strix Halo"),
        ("5.98 to 5.59 tok/s, read set +35 %", "a streamed model, Helldez/BigMoeOnEdge"),
    ),
    abstains="The file has no prediction block, or the llama-server at hand cannot draft with it.",
    references=("ggml-org/llama.cpp#22673",),
)


def _can(problem: Problem) -> bool:
    engine, target = problem.machine.engine, problem.workload.target_build
    if not any(layer.nextn for layer in problem.model.layers):
        return False
    if target is not None:
        return target >= SINCE
    if engine is None or engine.build is None:
        return False
    return engine.build >= SINCE and (not engine.flags or FLAG in engine.flags)


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Open ``spec_type`` where it can be had and a GPU takes part."""
    able = _can(problem) and bool(draft.values("devices")[0])
    return Proposal(domains=(("spec_type", (None, MTP) if able else (None,)),))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """With or without, and what the other takes; nothing where the file has no head."""
    heads = sum(layer.nextn for layer in problem.model.layers)
    if not heads or (problem.machine.engine is None and problem.workload.target_build is None):
        return ()
    settings, goal = chosen.settings, problem.workload.goal
    evidence = (
        Evidence("prediction blocks", heads, "blocks", Source.REPORTED),
        Evidence("tokens kept of a pass", ACCEPTED_TOKENS, "tokens", Source.ASSUMED),
    )
    if not _can(problem):
        detail = f"this llama.cpp does not list {FLAG}, or is older than b{SINCE}"
        loser, headline = Alternative(MTP, Fate.UNSUPPORTED, None, detail), "off: this build cannot"
    else:
        other = replace(settings, spec_type=None if settings.spec_type else MTP)
        loser = versus(other.spec_type or "none", evaluate(other), chosen, goal)
        if settings.spec_type:
            headline = "the model's own head drafts; memory of its context is counted"
        elif not draft.values("devices")[0]:
            headline = "off: it is tried only where a GPU takes part"
        else:
            headline = _off(loser)
    value = settings.spec_type or "none"
    return (Decision("prediction", "spec_type", value, headline, Confidence.ASSUMED, evidence, (loser,)),)


def _off(drafting: Alternative) -> str:
    """Why nothing is drafted, by what drafting would come to."""
    if drafting.outcome is Fate.DOES_NOT_FIT:
        return "off: its own context, cache and compute buffer do not fit beside the rest"
    if drafting.outcome is Fate.UNSUPPORTED:
        return "off: llama.cpp would not start with it"
    if drafting.by is not None and drafting.by >= 1.0 + EQUAL:
        return "off: a pass over several tokens costs more than the tokens that it yields save"
    return "off: nothing is gained by it"


RULE = Rule(DOC, propose, explain)
