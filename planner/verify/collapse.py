"""What a collapse looks like: the system pages VRAM (WDDM) or weights behind the engine's back.

Signatures measured on a 16 GB card under WDDM (zhaoyilun/moe-working-set-16gb): the GPU 100 % busy where a healthy
run with experts in RAM shows 34 %; p95 of the token times many times p50 (healthy: at most 1.6 times); minutes to
the first token instead of half a second; prefill at 0.12 and 0.55 of its usual rate; less than 1,024 MiB free in
every collapsed run whose memory was read, in no healthy one. A slow run alone is no collapse: something must press
on memory, too. Where a driver refuses what does not fit (Linux), a busy GPU is no such sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from planner import units
from planner.facts.observed import Sample
from planner.plans.speed import Band

TAIL: Final = 5.0
"""p95 over p50; healthy runs have 1.2 to 1.6."""
TAIL_S: Final = 0.25
"""A hiccup of a fast answer is none."""
TAIL_TOKENS: Final = 32
BUSY: Final = 0.95
FAR: Final = 0.5
"""Share of the low end of the prediction."""
TIGHT: Final = 0.6
"""Share of its middle, where the sums leave less free than the rule: 0.55 was seen."""
PATIENCE_S: Final = 10.0
"""Before the first token nothing is far from a prediction."""
LOOK_S: Final = 5.0
FAULTS_PER_S: Final = 200.0
"""Major faults that mean paging; each reads at least 4 KiB and stalls a thread."""
FILLING_BPS: Final = 16 * units.MIB
"""Growth of resident memory that says a file is still being read for the first time."""
SHARED_BYTES: Final = 256 * units.MIB
"""Growth of what a driver keeps in host memory for a device."""


@dataclass(frozen=True, slots=True)
class Card:
    """One device of a plan.

    Args:
        reserve_bytes: what the rule keeps free.
        hard: the system pages its memory silently (WDDM).
        spare_bytes: what the sums leave free: total less what others hold, the engine's buffers and overhead.
    """

    id: str
    total_bytes: int
    reserve_bytes: int
    hard: bool
    spare_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """What a healthy run would show; ``hybrid``: part of the experts is in RAM, so that the GPU must often wait."""

    decode_tps: Band
    prefill_tps: Band
    cards: tuple[Card, ...] = ()
    hybrid: bool = True


@dataclass(frozen=True, slots=True)
class Progress:
    """An answer so far: seconds since the question, prompt tokens asked and done, and token times."""

    elapsed_s: float
    prompt_n: int
    processed: int = 0
    first_s: float | None = None
    gaps_s: tuple[float, ...] = ()


def collapse(expected: Expected, progress: Progress, samples: tuple[Sample, ...]) -> str:
    """Why this run has collapsed; empty if it has not (yet).

    Args:
        samples: of this run, in order.
    """
    if found := headroom(expected.cards, samples):
        return found
    pressed, tight = _pressed(expected, samples), _tight(expected)
    if not (pressed or tight):
        return ""
    for sign in (_tail(progress) if pressed else "", _first(expected, progress), _slow(expected, progress, tight)):
        if sign:
            return f"{sign}; {pressed or tight}"
    return ""


def headroom(cards: tuple[Card, ...], samples: tuple[Sample, ...]) -> str:
    """Which device the system pages, or will: less than the rule is free of it; empty if there is none."""
    for card in cards:
        used = [gpu.used_bytes for s in samples for gpu in s.gpus if gpu.device == card.id and gpu.used_bytes]
        free = card.total_bytes - max(used, default=0)
        if card.hard and used and free < card.reserve_bytes:
            return f"{card.id} has {units.mib(free)} free; under WDDM less than {units.mib(card.reserve_bytes)} pages"
    return ""


def _tight(expected: Expected) -> str:
    for card in expected.cards:
        if card.hard and card.spare_bytes is not None and card.spare_bytes < card.reserve_bytes:
            left, rule = units.mib(card.spare_bytes), units.mib(card.reserve_bytes)
            return f"the sums leave {left} of {card.id}, the rule is {rule}"
    return ""


def _pressed(expected: Expected, samples: tuple[Sample, ...]) -> str:
    """What presses on memory."""
    for card in expected.cards:
        mine = [gpu for s in samples for gpu in s.gpus if gpu.device == card.id]
        busy = [gpu.busy for gpu in mine[-3:] if gpu.busy is not None]
        if card.hard and expected.hybrid and len(busy) >= 2 and min(busy) >= BUSY:
            return f"{card.id} is 100 % busy though experts in RAM should make it wait"
        shared = [gpu.shared_bytes for gpu in mine if gpu.shared_bytes is not None]
        if shared and shared[-1] - shared[0] > SHARED_BYTES:
            return f"{card.id} has spilled {units.mib(shared[-1] - shared[0])} into host memory"
    return _paged(samples)


def _paged(samples: tuple[Sample, ...]) -> str:
    """Reads from the disk that bring nothing new: while resident memory grows, a mapped file is touched at first."""
    known = [s for s in samples if s.major_faults is not None and s.rss_bytes is not None]
    if len(known) < 2:
        return ""
    before, after = known[-2:]
    seconds = after.at_s - before.at_s
    faults = (after.major_faults or 0) - (before.major_faults or 0)
    grows = (after.rss_bytes or 0) - (before.rss_bytes or 0) > FILLING_BPS * seconds
    if grows or seconds <= 0 or faults / seconds <= FAULTS_PER_S:
        return ""
    return f"{faults / seconds:,.0f} pages per second come from the disk"


def _tail(progress: Progress) -> str:
    gaps = sorted(progress.gaps_s)
    if len(gaps) < TAIL_TOKENS:
        return ""
    p50, p95 = gaps[len(gaps) // 2], gaps[min(ceil(len(gaps) * 0.95), len(gaps)) - 1]
    if p95 > TAIL * p50 and p95 > TAIL_S:
        return f"one token in twenty takes {p95:.2f} s, {p95 / p50:.0f} times the usual"
    return ""


def _first(expected: Expected, progress: Progress) -> str:
    """Too long before the first token, whatever the prompt's rate was to be."""
    usual = progress.prompt_n / expected.prefill_tps.low + 1.0 / expected.decode_tps.low
    waited = progress.elapsed_s if progress.first_s is None else progress.first_s
    if waited > PATIENCE_S + 4.0 * usual:
        return f"{waited:.0f} s to the first token, {usual:.1f} s were expected at most"
    return ""


def _slow(expected: Expected, progress: Progress, tight: str) -> str:
    """Rates far under the prediction."""

    def floor(band: Band) -> float:
        return max(FAR * band.low, TIGHT * band.mid if tight else 0.0)

    done, waited = progress.processed, progress.first_s or progress.elapsed_s
    if done and waited > LOOK_S and done / waited < floor(expected.prefill_tps):
        return f"prefill runs at {done / waited:,.0f} tok/s, {expected.prefill_tps.mid:,.0f} were predicted"
    recent = progress.gaps_s[-16:]
    if len(recent) >= 8 and sum(recent) > 1.0 and len(recent) / sum(recent) < floor(expected.decode_tps):
        rate = len(recent) / sum(recent)
        return f"decode runs at {rate:,.1f} tok/s, {expected.decode_tps.mid:,.1f} were predicted"
    return ""
