"""When nothing fits: what is short, and the nearest plan that would fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.cost.evaluate import Evaluator
from planner.plans.plan import Candidate, Refusal
from planner.plans.rule import Problem, Rule
from planner.plans.settings import Settings
from planner.search.ladder import Search, search


def closest(searched: Search) -> Candidate:
    """Of all candidates at the ends of the ladder, the one that lacks least."""
    ends = searched.rungs()[-2:]
    tried = [searched.evaluate(searched.at(base, rung)) for base in searched.combinations() for rung in ends]
    return min(tried, key=lambda c: sum(s.needed_bytes - s.available_bytes for s in c.shortfalls))


def refuse(problem: Problem, rules: tuple[Rule, ...], evaluator: Evaluator, nearest_miss: Candidate) -> Refusal:
    """Why nothing fits, and the first relaxation that would: without pins, a shorter context, a smaller cache."""
    nearest, by = None, ""
    for words, relaxed in _relaxations(problem, nearest_miss.settings):
        nearest = search(relaxed, rules, evaluator).best()
        if nearest is not None:
            by = words
            break
    pins = ", ".join(f"{name}={value}" for name, value in problem.workload.pins)
    reason = "no placement keeps the headroom on every device and fits in RAM"
    if pins:
        reason += f" with the pinned {pins}"
    return Refusal(nearest_miss.shortfalls, nearest, reason + (f"; it would fit {by}" if by else ""))


def _relaxations(problem: Problem, settings: Settings) -> Iterator[tuple[str, Problem]]:
    work = problem.workload
    if work.pins:
        yield "without the pins", replace(problem, workload=replace(work, pins=()))
    n_ctx = settings.n_ctx // 2
    while n_ctx >= 2048:
        n_ctx -= n_ctx % 256
        yield f"with a context of {n_ctx:,}", replace(problem, workload=replace(work, pins=(), n_ctx=n_ctx))
        n_ctx //= 2
