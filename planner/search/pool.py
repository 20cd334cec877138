"""The pool of experts in the joint search: against whole layers, and against a larger ubatch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Final

from planner.cost.pool import expected
from planner.cost.pool_gain import bare, largest, spare
from planner.facts.routing import Ground
from planner.plans.compare import cost
from planner.plans.plan import Candidate
from planner.plans.settings import Settings
from planner.units import MIB

if TYPE_CHECKING:
    from planner.search.engine import Search

GAINS: Final = {Ground.REPLAY: 0.02, Ground.COUNTS: 0.05}
"""Share of the goal's cost that a pool must save, by what its hit rate stands on: a replay of another text moves it by
5 to 10 points. Nothing is staked on a prior (``policies/pool.py``)."""

NOISE: Final = 0.03
"""Costs this close are not told apart: two runs of one pool differ by as much (benchmarks/pool). Then all experts in
RAM under one pool are taken, which has fewer flags and measured up to 10 % faster than such a mixture."""

PLACES: Final = 4
"""Placements between the chosen one and all experts in RAM that are tried."""

SIZES: Final = 3
"""Ubatches that are tried, the chosen one and the next smaller: less leaves hardly more room."""

PRICED: Final = 3
"""Placements that are priced in full at most, best bounds first."""

TRIES: Final = 4
"""Steps down where a pool that should fit does not: slots are whole, and several devices do not fill alike."""


def with_pool(search: Search, chosen: Candidate) -> Candidate:
    """``chosen``, or what beats it with a pool in the VRAM that its placement or a lower one leaves.

    Every placement gets a bound first (a pool in all that weights and cache leave); they are priced in full in the
    order of their bounds, until none can win. Within ``NOISE`` of the best one, a pool for all experts is taken.
    """
    steps, settings, goal = search.draft.values("moe_cache_mib"), chosen.settings, search.problem.workload.goal
    if len(steps) < 2 or not settings.devices or not bare(settings):
        return chosen
    best, limit = chosen, cost(chosen, goal) * (1.0 - GAINS[expected(search.problem.model).ground])
    bounds = ((_bound(search, base, steps[1:]), base) for base in _bases(search, settings))
    for bound, base in sorted(bounds, key=lambda pair: pair[0])[:PRICED]:
        if bound > limit:
            break
        found = _filled(search, base, steps[1:])
        if found is not None and found.verdict is chosen.verdict and cost(found, goal) <= limit:
            best, limit = found, cost(found, goal)
    return best if best is chosen else _simplest(search, best, steps[1:])


def _simplest(search: Search, best: Candidate, steps: tuple[int, ...]) -> Candidate:
    """``best``, or the same with all experts in RAM under one pool where that costs as good as the same."""
    goal, blocks = search.problem.workload.goal, search.draft.values("n_cpu_moe")
    if best.settings.n_cpu_moe == blocks[-1]:
        return best
    whole = _filled(search, replace(best.settings, n_cpu_moe=blocks[-1], moe_cache_mib=0), steps)
    same = whole is not None and whole.verdict is best.verdict and cost(whole, goal) <= cost(best, goal) * (1.0 + NOISE)
    return whole if whole is not None and same else best


def _bound(search: Search, base: Settings, steps: tuple[int, ...]) -> float:
    """The least the placement can cost with a pool; infinite where none fits."""
    reserve = search.draft.reserve
    size = _room(search.evaluator.bound(base, reserve), reserve, steps)
    if not size:
        return inf
    return cost(search.evaluator.bound(replace(base, moe_cache_mib=size), reserve), search.problem.workload.goal)


def _room(empty: Candidate, reserve: tuple[tuple[str, int], ...], steps: tuple[int, ...]) -> int:
    """The largest pool beside a candidate, in MiB."""
    return largest(steps, len(empty.settings.devices) * spare(empty, reserve) // MIB)


def _bases(search: Search, settings: Settings) -> Iterator[Settings]:
    """Placements that may leave room: fewer experts on the devices, at this ubatch and smaller ones, any load mode."""
    blocks = [n for n in search.draft.values("n_cpu_moe") if n >= max(settings.n_cpu_moe, 1)]
    if not blocks or settings.n_gpu_layers <= search.problem.model.n_layer:
        return
    places = sorted({blocks[(len(blocks) - 1) * i // (PLACES - 1)] for i in range(PLACES)})
    sizes = sorted((u for u in search.draft.values("n_ubatch") if u <= settings.n_ubatch), reverse=True)[:SIZES]
    modes = search.draft.values("load_mode")
    for n_ubatch, n_cpu_moe, mode in product(sizes, places, modes):
        yield replace(settings, n_cpu_moe=n_cpu_moe, n_ubatch=n_ubatch, load_mode=mode)


def _filled(search: Search, base: Settings, steps: tuple[int, ...]) -> Candidate | None:
    """The placement with the largest pool that fits; None if none does."""
    empty = search.evaluate(base)
    size = _room(empty, search.draft.reserve, steps)
    for _ in range(TRIES):
        if not size or not empty.runs:
            return None
        candidate = search.evaluate(replace(base, moe_cache_mib=size))
        if candidate.runs:
            return candidate
        over = max((s.needed_bytes - s.available_bytes for s in candidate.shortfalls), default=0)
        size = largest(steps, size - max(len(base.devices) * over // MIB, 1))
    return None
