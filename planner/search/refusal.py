"""When nothing fits: what is short, and the nearest plan that would fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.cost.evaluate import Evaluator
from planner.plans.plan import Candidate, Refusal
from planner.plans.rule import Problem, Rule
from planner.search.engine import Search, search
from planner.search.ladder import rungs

LEAST_CONTEXT = 2048
CONTEXT_STEP = 1024
"""The longest context that fits is found to this many tokens."""


def closest(searched: Search) -> Candidate:
    """Of all candidates at the ends of the ladder, the one that lacks least."""
    n_ctx = searched.draft.values("n_ctx")[0]
    tried = [
        searched.evaluate(searched.at(base, rung))
        for base in searched.combinations(n_ctx)
        for rung in rungs(searched.draft, base.devices)[-2:]
    ]
    return min(tried, key=lambda c: sum(s.needed_bytes - s.available_bytes for s in c.shortfalls))


def refuse(problem: Problem, rules: tuple[Rule, ...], evaluator: Evaluator, nearest_miss: Candidate) -> Refusal:
    """Why nothing fits, and the first relaxation that would: without the pins, then the longest context that fits."""
    nearest, by = None, ""
    for words, relaxed in _relaxations(problem, nearest_miss.settings.n_ctx):
        nearest = search(relaxed, rules, evaluator).best()
        if nearest is not None:
            by = words
            break
    if nearest is not None and "context" in by:
        nearest = _longest(problem, rules, evaluator, nearest, nearest_miss.settings.n_ctx)
        by = f"with a context of {nearest.settings.n_ctx:,}"
    pins = ", ".join(f"{name}={value}" for name, value in problem.workload.pins)
    reason = "no placement keeps the headroom on every device and fits in RAM"
    if pins:
        reason += f" with the pinned {pins}"
    return Refusal(nearest_miss.shortfalls, nearest, reason + (f"; it would fit {by}" if by else ""))


def _relaxations(problem: Problem, n_ctx: int) -> Iterator[tuple[str, Problem]]:
    if problem.workload.pins:
        yield "without the pins", replace(problem, workload=replace(problem.workload, pins=()))
    while (n_ctx := n_ctx // 2) >= LEAST_CONTEXT:
        yield "with a shorter context", _shortened(problem, n_ctx)


def _shortened(problem: Problem, n_ctx: int) -> Problem:
    return replace(problem, workload=replace(problem.workload, pins=(), n_ctx=n_ctx))


def _longest(
    problem: Problem, rules: tuple[Rule, ...], evaluator: Evaluator, fits: Candidate, too_long: int
) -> Candidate:
    """The longest context between one that fits and one that does not."""
    low, high = fits.settings.n_ctx, too_long
    while high - low > max(CONTEXT_STEP, low // 16):
        middle = (low + high) // 2 // CONTEXT_STEP * CONTEXT_STEP
        candidate = search(_shortened(problem, middle), rules, evaluator).best()
        if candidate is None or middle <= low:
            high = middle
        else:
            low, fits = middle, candidate
    return fits
