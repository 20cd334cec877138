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
LOOKS: Final = (2, 4, 8, 12, 16)
"""Pairs after which the numbers are looked at: as many of either order, and seldom, as every look may err. After the
last an open question stays as it was."""
FEWEST: Final = 4
"""Pairs before a change is kept; what clearly costs is out after the first look."""
MOST: Final = LOOKS[-1]
_T: Final = {2: 12.7, 4: 3.18, 8: 2.36, 12: 2.20, 16: 2.13}
"""Student's t, 95 %, by pairs: what two standard errors are for a few of them."""


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
    error = _T[max(n for n in LOOKS if n <= len(logs))] * stdev(logs) / sqrt(len(logs))
    if len(logs) not in LOOKS:
        ruling = Ruling.MORE
    elif len(logs) >= FEWEST and mean > error and gain > LEAST:
        ruling = Ruling.KEEP
    elif mean + error < -log(1.0 - LEAST) or len(logs) >= MOST:
        ruling = Ruling.REJECT
    else:
        ruling = Ruling.MORE
    return Judged(ruling, gain, error * (1.0 - gain), len(logs))
