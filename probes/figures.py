"""Repeats of one measurement → a Reading, and its form in the store."""

from __future__ import annotations

import math
from typing import Any

from planner.facts.reading import Reading, Source


def measured(samples: list[float], method: str, duration_s: float) -> Reading:
    """The median of repeats; ``spread`` is half the distance between the largest and the smallest.

    Raises:
        ValueError: no sample, or one that is not a positive number.
    """
    if not samples or not all(math.isfinite(sample) and sample > 0 for sample in samples):
        raise ValueError(f"expected positive samples, found {samples[:8]}")
    return Reading(
        value=median(samples),
        source=Source.MEASURED,
        method=f"{method}, median of {len(samples)}",
        spread=(max(samples) - min(samples)) / 2,
        duration_s=round(duration_s, 3),
    )


def median(samples: list[float]) -> float:
    """The middle one, or the mean of the two in the middle. (``statistics`` takes 10 ms to import.)"""
    ordered, n = sorted(samples), len(samples)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def to_json(reading: Reading) -> dict[str, Any]:
    return {
        "value": reading.value,
        "method": reading.method,
        "spread": reading.spread,
        "duration_s": reading.duration_s,
    }


def from_json(data: Any) -> Reading:
    """Raises ValueError for anything that ``to_json`` does not write."""
    if not isinstance(data, dict):
        raise ValueError("a reading is an object")
    value, method = _number(data.get("value")), data.get("method")
    if not value or not isinstance(method, str):
        raise ValueError("a reading has a positive value and a method")
    return Reading(value, Source.MEASURED, method, _number(data.get("spread")), _number(data.get("duration_s")))


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"expected a number of at least 0, found {value!r}")
    return value
