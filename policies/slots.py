"""How many requests run at once, and whether they share one cache."""

from __future__ import annotations

from planner import units
from planner.plans.compare import given
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, Fate, RuleDoc
from planner.plans.plan import Candidate
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule

DOC = RuleDoc(
    id="slots",
    title="One slot unless more are asked for, each with a cache of its own",
    settings=("n_parallel", "kv_unified"),
    what=(
        "-np is always printed: 1, or what --parallel asks. Of N slots each gets n_ctx / N tokens that nobody can "
        "take from it. --pin kv_unified=on lets them share one cache of n_ctx."
    ),
    why=(
        "llama-server alone opens four slots over a shared cache: recurrent states and sliding caches are then paid "
        "four times, and one long request starves the others. A shared cache also makes every token look over the "
        "cells of all slots."
    ),
    numbers=(
        ("62.8 MiB of recurrent state per slot", "Qwen3.6-35B-A3B, src/llama-memory-recurrent.cpp (b11434)"),
        ("four slots by default", "tools/server/server.cpp (b11434)"),
    ),
    abstains="Never: the number of slots is always printed. Sharing is not mentioned for one slot.",
    references=("src/llama-context.cpp (b11434): n_ctx_seq",),
)


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Decide ``n_parallel`` and ``kv_unified``."""
    return Proposal(domains=(("n_parallel", (problem.workload.n_parallel,)), ("kv_unified", (False,))))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """Slots with the tokens of each; whose cache it is where there are several."""
    settings, work = chosen.settings, problem.workload
    n, evidence = settings.n_parallel, (Evidence("slots", work.n_parallel, "slots", given("n_parallel", work=work)),)
    each = settings.n_ctx if settings.kv_unified else settings.n_ctx // n
    words = "one slot" if n == 1 else f"{n} slots"
    slots = Decision(
        "slots",
        "n_parallel",
        n,
        f"{words} of {units.counted(each, 'token')}; llama-server alone would open 4",
        Confidence.DERIVED,
        evidence,
    )
    if n == 1:
        return (slots,)
    other = "one cache for all: each token looks over the cells of every slot, and one request can take all of it"
    headline = "all slots share one cache" if settings.kv_unified else "a cache of its own for every slot"
    losers = () if settings.kv_unified else (Alternative(True, Fate.SLOWER, None, other),)
    return (slots, Decision("slots", "kv_unified", settings.kv_unified, headline, Confidence.DERIVED, evidence, losers))


RULE = Rule(DOC, propose, explain)
