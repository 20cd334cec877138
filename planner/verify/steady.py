"""Whether a machine was steady enough, over a whole verification, for its speed to be learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.cost.speed import SPREAD
from planner.facts.reading import Source
from planner.facts.workload import Goal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.facts.observed import Sample
    from planner.plans.verified import Trial

BUSY: Final = 0.25
"""Share of the CPUs that others may take before a speed is no measure of the machine."""
APART: Final = SPREAD[Source.MEASURED] ** 2
"""Fastest over slowest block of the same settings: further apart, they do not fit the band of a measured rate."""
FADED: Final = SPREAD[Source.ASSUMED]
"""How much slower than the first answer later decode may be once the predicted cost of depth is taken out: beyond the
band of assumed rates, depth does not explain it. A first answer that is slower than later ones was cold."""
LEAST_S: Final = 1.0
"""A shorter look at the CPUs says nothing: systems count their time in steps of some 10 ms."""

Apart = tuple[tuple[str, float], ...]
"""``("decode" or "prefill", fastest over slowest of what should be equal)``."""


@dataclass(frozen=True, slots=True)
class Doubts:
    """Why a speed is no measure of the machine. Args: busy: others used the CPUs; else the rates alone disagree."""

    reasons: tuple[str, ...]
    busy: bool

    @property
    def cause(self) -> str:
        return "the machine was busy" if self.busy else "its speed was unsteady"


def doubts(before: float | None, during: float | None, apart: Apart, faded: float | None) -> Doubts | None:
    """What speaks against learning a run's speed; None if nothing does.

    Args:
        before, during: share of the CPUs that others took before the engine started, and while it answered.
        apart: of the blocks of trials.
        faded: decode of the first answer over that of the last, without what depth explains.
    """
    busy = [why for why in (said_before(before), _said_during(during)) if why]
    found = [f"{name} of the same settings varied by a factor of {n:.1f}" for name, n in apart if n > APART]
    if faded is not None and faded > FADED:
        found.append(f"decode fell to {1 / faded:.0%} of the first answer's, more than depth explains")
    return Doubts((*busy, *found), bool(busy)) if busy or found else None


def said_before(share: float | None) -> str:
    """That others used the CPUs before; empty if they did not, or nobody knows."""
    return f"{share:.0%} of the CPUs were busy before" if share is not None and share > BUSY else ""


def _said_during(share: float | None) -> str:
    return f"others took {share:.0%} of the CPUs meanwhile" if share is not None and share > BUSY else ""


def others(samples: tuple[Sample, ...]) -> float | None:
    """Share of the CPUs that neither the engine nor we took between the first and the last sample; None if unknown."""
    known = [(sample.at_s, sample.cpu) for sample in samples if sample.cpu is not None]
    if not known or known[-1][0] - known[0][0] < LEAST_S:
        return None
    first, last = known[0][1], known[-1][1]
    if last.total_s <= first.total_s:
        return None
    taken = (last.busy_s - first.busy_s) - (last.own_s - first.own_s)
    return min(max(taken / (last.total_s - first.total_s), 0.0), 1.0)


def blocks_apart(decode: tuple[float, ...], prefill: tuple[float, ...], part: Goal) -> Apart:
    """How far blocks of the same settings are apart; prompts of a trial of decode alone are too short to tell."""
    rates = (("decode", decode), ("prefill", () if part is Goal.DECODE else prefill))
    return tuple((name, max(found) / min(found)) for name, found in rates if len(found) > 1)


def widest(trials: tuple[Trial, ...]) -> Apart:
    """The most that blocks of one trial's settings were apart, by rate."""
    return tuple(_widest([pair for trial in trials for pair in trial.apart]))


def _widest(pairs: list[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    for name in ("decode", "prefill"):
        if found := [n for rate, n in pairs if rate == name]:
            yield name, max(found)


def spreads(apart: Apart, faded: float | None) -> Apart:
    """The band that one run justifies, by rate: what it saw twice was so far apart, and no rate is better than a
    measured one. Rates that it saw only once justify none."""
    pairs = [*apart] + ([("decode", max(faded, 1 / faded))] if faded else [])
    return tuple((name, max(n, SPREAD[Source.MEASURED])) for name, n in _widest(pairs))
