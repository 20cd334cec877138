"""What a verified run teaches: how far off the predicted rates are, within bounds."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import Final

from planner.cost.speed import SPREAD
from planner.facts.reading import Source
from planner.plans.settings import Settings
from planner.plans.verified import Compared

BOUND: Final = 4.0
"""A correction never goes beyond a factor of four either way: a rate that is further off is a fault to find (a busy
machine, a wrong device), not one to plan with."""
KEPT: Final = 8
"""Runs that a correction is the median of."""
UNKNOWN: Final = SPREAD[Source.ASSUMED]
"""The band of a run that was kept without one: nobody knows how steady it was."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Observed over raw predicted rate of one run, and the band that the run justifies; None of older runs."""

    value: float
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class Ratio:
    """Observed over predicted, and how it came to be.

    Args:
        bounded: True if it was cut.
        spread: between the corrected rate and the ends of its band.
        runs: that it is the median of.
    """

    value: float
    bounded: bool
    spread: float
    runs: int


def ratio(observed: tuple[Rate, ...]) -> Ratio | None:
    """The correction that follows from single runs, oldest first; None without any.

    A run outside the band of those before it by more than the band's width saw another machine: it replaces them.
    """
    kept: tuple[Rate, ...] = ()
    for rate in observed:
        if kept and abs(log(rate.value) - _middle(kept)) > 3.0 * log(_spread(kept)):
            kept = ()
        kept = (*kept, rate)[-KEPT:]
    if not kept:
        return None
    middle = exp(_middle(kept))
    cut = min(max(middle, 1.0 / BOUND), BOUND)
    return Ratio(cut, cut != middle, _spread(kept), len(kept))


def _middle(kept: tuple[Rate, ...]) -> float:
    return median(log(rate.value) for rate in kept)


def _spread(kept: tuple[Rate, ...]) -> float:
    """What a single run justifies; of several, how far they are from their median, and no less than a measured rate."""
    if len(kept) == 1:
        return UNKNOWN if kept[0].spread is None else kept[0].spread
    return max(SPREAD[Source.MEASURED], exp(max(abs(log(rate.value) - _middle(kept)) for rate in kept)))


def run_ratio(compared: tuple[Compared, ...], term: str, applied: float | None) -> float | None:
    """Observed over the raw prediction of one run.

    Args:
        applied: the correction that the prediction already holds; None without one.
    """
    found = next((c for c in compared if c.term == term and c.judged), None)
    if found is None or found.observed <= 0 or found.predicted.mid <= 0:
        return None
    return found.observed / found.predicted.mid * (applied or 1.0)


def changed(before: Settings, after: Settings) -> tuple[tuple[str, object], ...]:
    """Settings that differ, with their new values."""
    names = Settings.__dataclass_fields__
    return tuple((n, getattr(after, n)) for n in names if getattr(before, n) != getattr(after, n))


def as_pin(value: object) -> str:
    """A value in the words of ``--pin``."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join("=".join(item) if isinstance(item, tuple) else str(item) for item in value)
    return str(value)
