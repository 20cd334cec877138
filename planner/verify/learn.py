"""What a verified run teaches: how far off the predicted rates are, within bounds."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import Final

from planner.plans.settings import Settings
from planner.plans.verified import Compared

BOUND: Final = 4.0
"""A correction never goes beyond a factor of four either way: a rate that is further off is a fault to find (a busy
machine, a wrong device), not one to plan with."""
KEPT: Final = 8
"""Runs that a correction is the median of: one odd run does not turn it."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Observed over predicted; ``bounded`` if it was cut."""

    value: float
    bounded: bool


def ratio(observed: tuple[float, ...]) -> Ratio | None:
    """The correction that follows from single runs; None without any."""
    if not observed:
        return None
    middle = exp(median(log(value) for value in observed[-KEPT:]))
    cut = min(max(middle, 1.0 / BOUND), BOUND)
    return Ratio(cut, cut != middle)


def run_ratio(compared: tuple[Compared, ...], term: str, applied: float | None) -> float | None:
    """Observed over the raw prediction of one run.

    Args:
        applied: the correction that the prediction already holds; None without one.
    """
    found = next((c for c in compared if c.term == term), None)
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
