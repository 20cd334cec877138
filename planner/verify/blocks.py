"""The order of a trial's blocks, and what they showed.

A machine warms up, a cache fills, a neighbour wakes: whatever drifts must not credit the arm that runs second. So
blocks of equal size run in the order A B B A A B B A …, neighbours make pairs, and half of the pairs have either
order. A load stays for two blocks, which halves the starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import Final

TOKENS: Final = 64
"""Answer tokens of a block, at least."""
LEAST: Final = 0.03
"""A change must save this share of the cost: less is not worth a setting of its own."""
FEWEST: Final = 4
"""Pairs before anything is decided."""
MOST: Final = 8
"""Pairs after which an open question stays as it was."""
_T: Final = {3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36}
"""Student's t, 95 %, by degrees of freedom: what two standard errors are for a few pairs."""


class Arm(StrEnum):
    """``A`` are the settings as they are, ``B`` those with the change."""

    A = "a"
    B = "b"


def order(pairs: int) -> Iterator[tuple[Arm, Arm]]:
    """Pairs A B, B A, A B, … so that a load serves two blocks in a row."""
    for n in range(pairs):
        yield (Arm.A, Arm.B) if n % 2 == 0 else (Arm.B, Arm.A)


class Ruling(StrEnum):
    KEEP = "keep"
    REJECT = "reject"
    MORE = "more"


@dataclass(frozen=True, slots=True)
class Judged:
    """What pairs of blocks showed.

    Args:
        gain: mean share of the cost that B saves (negative: B costs more).
        error: about two standard errors of it; None with fewer than two pairs.
    """

    ruling: Ruling
    gain: float
    error: float | None
    pairs: int


def judged(costs: tuple[tuple[float, float], ...]) -> Judged:
    """The ruling over pairs ``(cost of A, cost of B)``, seconds of the same work.

    Keeps beyond the noise and beyond ``LEAST``, rejects as soon as the change cannot be worth that much.
    """
    logs = [log(a / b) for a, b in costs]
    mean = fmean(logs)
    gain = 1.0 - exp(-mean)
    if len(logs) < 2:
        return Judged(Ruling.MORE, gain, None, len(logs))
    error = _T[min(max(len(logs) - 1, 3), 7)] * stdev(logs) / sqrt(len(logs))
    if len(logs) < FEWEST:
        ruling = Ruling.MORE
    elif mean > error and gain > LEAST:
        ruling = Ruling.KEEP
    elif mean + error < -log(1.0 - LEAST) or len(logs) >= MOST:
        ruling = Ruling.REJECT
    else:
        ruling = Ruling.MORE
    return Judged(ruling, gain, error, len(logs))
