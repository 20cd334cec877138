"""A user's own settings, judged by the same rules: memory, speed, verdict, and what would fit instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.cost.confirm import Extra
from planner.cost.evaluate import budgeted
from planner.errors import OptionError
from planner.plans.plan import Candidate, Plan, Refusal
from planner.plans.rule import Problem, Rule
from planner.plans.settings import Settings, Tool
from planner.search.decide import cautions, evaluator_of, settled
from planner.search.engine import search

KEPT: Final = ("kv_unified", "swa_full", "kv_offload", "no_host")
"""Switches of the user that the search leaves as they are, and that memory or the tokens of a slot depend on."""


def judge(problem: Problem, rules: tuple[Rule, ...], settings: Settings, tool: Tool, extra: Extra = ()) -> Plan:
    """Price ``settings`` for ``tool`` under the headroom the rules demand; no decision is made for the user.

    Args:
        extra: as for ``plan``.

    Raises:
        OptionError: settings that llama.cpp itself would refuse.
    """
    problem = replace(problem, machine=budgeted(problem.machine, problem.workload))
    server = evaluator_of(problem, Tool.SERVER, extra, whole=False)
    runs = evaluator_of(problem, tool, extra)
    chosen = runs.candidate(settings, search(problem, rules, server).draft.reserve)
    refusal = None
    if not chosen.runs:
        refusal = Refusal(chosen.shortfalls, _nearest(problem, rules, extra, settings), _reason(chosen))
    return Plan(
        machine=problem.machine,
        model=problem.model,
        workload=problem.workload,
        chosen=chosen,
        cautions=cautions(problem, chosen),
        refusal=refusal,
        lint=(),
        verified=problem.verified,
    )


def stopped(plan: Plan, rules: tuple[Rule, ...], reasons: tuple[str, ...]) -> Plan:
    """A judged plan whose flags llama.cpp would stop at, refused for that, too."""
    reason = "; ".join(reasons)
    if plan.refusal is not None and not plan.refusal.shortfalls:
        return replace(plan, refusal=replace(plan.refusal, reason=reason))
    if plan.refusal is not None:
        return replace(plan, refusal=replace(plan.refusal, reason=f"{reason}; {plan.refusal.reason}"))
    problem = Problem(plan.machine, plan.model, plan.workload, plan.verified)
    extra = plan.oracle.reserved if plan.oracle else ()
    nearest = _nearest(problem, rules, extra, plan.chosen.settings)
    return replace(plan, refusal=Refusal((), nearest, reason))


def _reason(chosen: Candidate) -> str:
    if chosen.objections:
        return f"llama.cpp does not start: {'; '.join(chosen.objections)}"
    return "these flags leave less free than the headroom, or need more than there is"


def _nearest(problem: Problem, rules: tuple[Rule, ...], extra: Extra, settings: Settings) -> Candidate | None:
    """What fits with the user's context, slots, cache types and switches; else with other types; else whatever does."""
    work = replace(
        problem.workload,
        n_ctx=settings.n_ctx,
        n_parallel=settings.n_parallel,
        pins=problem.workload.pins + _kept(problem, settings),
    )
    for wish in (replace(work, kv=(settings.type_k, settings.type_v)), work, problem.workload):
        try:
            _, found = settled(replace(problem, workload=wish), rules, extra)
        except OptionError:
            continue  # the cache types are what llama.cpp refuses
        if found is not None:
            return found
    return None


def _kept(problem: Problem, settings: Settings) -> tuple[tuple[str, str], ...]:
    """The user's switches as pins, where ``--pin`` does not say otherwise."""
    words = ((name, "on" if getattr(settings, name) else "off") for name in KEPT)
    return tuple((name, word) for name, word in words if problem.pin(name) is None)
