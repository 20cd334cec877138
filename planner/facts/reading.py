"""A quantity together with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Source(StrEnum):
    """How a number came to be, from strongest to weakest (``user`` overrides all)."""

    USER = "user"
    MEASURED = "measured"
    REPORTED = "reported"
    DERIVED = "derived"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Reading:
    """``value`` in the unit that the field's name carries (``_bps``, ``_s``, …).

    Args:
        method: how it was obtained, in a few words.
        spread: half the distance between repeats, same unit; None if it was not repeated.
        duration_s: how long measuring it took; None if it was not measured here.
    """

    value: float
    source: Source
    method: str = ""
    spread: float | None = None
    duration_s: float | None = None
