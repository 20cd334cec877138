"""What every step of a verification takes, and what the budget pays for.

Rates come from the prediction until the engine has answered, from its answers after that. Trials come first in worth:
a look at depth takes its part of the budget or what they leave. Two trials of a minute show more than one of two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from planner.facts.workload import Goal
from planner.plans.verified import Attempt, Forecast, Rates
from planner.verify.blocks import FEWEST, TOKENS

EARLY: Final = 1 / 8
"""Share of the budget that a look may take before the trials: what is cheap comes first, as it may end them."""
KEPT_BACK: Final = 0.4
"""Share of the budget that trials leave for a look at depth that is still to come, at most."""
TOGETHER: Final = 3
"""Trials that should find room: a change takes its share of the time at most, or what it needs at least, and leaves the
two cheapest others theirs."""
LEAST_PROMPT: Final = 128
"""Tokens of the shortest prompt whose prefill tells anything."""
UBATCHES: Final = (4, 2, 1)
"""A prompt that shows prefill has so many ubatches, the most that is affordable."""
CPU_PROMPT: Final = 256
"""Tokens from which a prompt without a device runs at its full rate, whatever the ubatch: 156, 163, 152, 152 tok/s for
64, 128, 256, 512 of them, 136 for 2,048, as attention grows (an 846 MB model on two cores, b11549)."""
ANSWER_SHARE: Final = 3.0
"""Where only decode changes a block's answer takes so many times what its prompt takes."""
WARM_UP: Final = (32, 8)
"""Prompt and answer after a start that count nothing: pages and kernels are touched for the first time."""
ASSUMED_LOAD_BPS: Final = 1.5e9
"""What a start reads of a file that was just read; 1.3 to 1.8 GB/s with weights copied to an H200 and page-locked
(benchmarks/pool, 7 to 13 GB), 0.8 GB mapped in under a second on two cores."""
START_S: Final = 0.5
"""What a start takes beside reading."""


SLOWEST_AGAIN: Final = 0.5
"""Of that rate, at least, a start reaches once the file was read."""


def again_s(file_bytes: int) -> float:
    """Seconds that a further start takes at most: the first may have waited for a cold disk (25.1 s for 0.8 GB)."""
    return START_S + file_bytes / (SLOWEST_AGAIN * ASSUMED_LOAD_BPS)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast an engine is: tokens per second, and seconds of a start.

    Args:
        cold: a start makes the first prompt of a size slow, so that one is computed before blocks count: with a GPU
            the first ran at 0.52 to 0.64 of the rate of the second (benchmarks/pool).
    """

    prefill_tps: float
    decode_tps: float
    load_s: float
    cold: bool = False

    def times(self, before: Rates, after: Rates) -> Pace:
        """As much faster as a trial was."""
        prefill, decode = after.prefill_tps / before.prefill_tps, after.decode_tps / before.decode_tps
        return replace(self, prefill_tps=self.prefill_tps * prefill, decode_tps=self.decode_tps * decode)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What prompts of blocks are bounded by.

    Args:
        wanted: tokens of the workload's prompt.
        room: tokens that fit a slot beside a block's answer.
    """

    wanted: int
    room: int

    @property
    def most(self) -> int:
        return min(self.wanted, self.room)


@dataclass(frozen=True, slots=True)
class Choice:
    """A trial that there is time for, with its prompt. Args: allowed_s: what it may take at most."""

    attempt: Attempt
    prompt_n: int
    seconds: float
    allowed_s: float


def ask_s(pace: Pace, prompt_n: int, answer_n: int = TOKENS) -> float:
    """Seconds of one question."""
    return prompt_n / pace.prefill_tps + answer_n / pace.decode_tps


def warm_up(pace: Pace, attempt: Attempt, prompt_n: int) -> tuple[int, int]:
    """Prompt and answer that a start needs before its blocks count: an expert pool fills while it answers."""
    pool = any(name == "moe_cache_mib" for name, _ in attempt.changes) or attempt.settings.moe_cache_mib
    return (prompt_n if pace.cold else min(WARM_UP[0], prompt_n), TOKENS if pool else WARM_UP[1])


def trial_s(pace: Pace, attempt: Attempt, prompt_n: int) -> float:
    """Seconds of the shortest trial that may keep a change: four pairs, and a start for every two blocks."""
    start = pace.load_s + ask_s(pace, *warm_up(pace, attempt, prompt_n))
    return 2 * FEWEST * ask_s(pace, prompt_n) + (FEWEST + 1) * start


def prompts(pace: Pace, attempt: Attempt, bounds: Bounds) -> tuple[int, ...]:
    """Prompts that show a change, the longest first; none where the slot has no room.

    A change of decode alone pays no full prompt; one of prefill needs whole ubatches, several where they are cheap.
    """
    if bounds.most < 1:
        return ()
    least = min(LEAST_PROMPT, bounds.most)
    if attempt.part is Goal.DECODE:
        longest = int(TOKENS / pace.decode_tps * pace.prefill_tps / ANSWER_SHARE)
        found = [max(min(longest, bounds.most), least), least]
    else:
        on_device, ubatch = bool(attempt.settings.devices), any(name == "n_ubatch" for name, _ in attempt.changes)
        one = attempt.n_ubatch if on_device or ubatch else CPU_PROMPT
        found = [max(min(n * one, bounds.most), least) for n in (UBATCHES if on_device else UBATCHES[-1:])]
    return tuple(sorted(set(found), reverse=True))


def depth(pace: Pace, wanted: int, seconds: float) -> int:
    """Tokens of the longest prompt up to ``wanted`` that fits with a block's answer; 0 if it shows nothing."""
    found = min(int((seconds - TOKENS / pace.decode_tps) * pace.prefill_tps), wanted)
    return found if found >= min(LEAST_PROMPT, wanted) and found > 0 else 0


@dataclass(frozen=True, slots=True)
class _Offer:
    attempt: Attempt
    costs: tuple[tuple[int, float], ...]
    """Prompt and seconds, the dearest first."""

    @property
    def least(self) -> float:
        return self.costs[-1][1]


def _offers(pace: Pace, attempts: tuple[Attempt, ...], bounds: Bounds) -> list[_Offer]:
    found = []
    for attempt in attempts:
        costs = tuple((n, trial_s(pace, attempt, n)) for n in prompts(pace, attempt, bounds))
        if costs:
            found.append(_Offer(attempt, costs))
    return found


def choose(pace: Pace, attempts: tuple[Attempt, ...], bounds: Bounds, left_s: float, more: int) -> Choice | None:
    """The best change that fits so that others get their turn; None if none fits alone.

    Args:
        attempts: those worth the same are taken by what they take.
        more: trials that may still run.
    """
    offers = sorted(_offers(pace, attempts, bounds), key=lambda o: (-round(o.attempt.worth, 2), o.least))
    for together in range(min(more, TOGETHER, len(offers)), 0, -1):
        for number, offer in enumerate(offers):
            others = sorted(o.least for n, o in enumerate(offers) if n != number)[: together - 1]
            allowed = left_s - sum(others)
            if offer.least <= allowed:
                fair = max(left_s / together, offer.least)
                prompt_n, seconds = next((n, s) for n, s in offer.costs if s <= min(fair, allowed))
                return Choice(offer.attempt, prompt_n, seconds, min(fair, allowed))
    return None


def too_dear(pace: Pace, attempts: tuple[Attempt, ...], bounds: Bounds, left_s: float, back_s: float) -> str:
    """Why none of the changes is tried.

    Args:
        left_s: what trials may still take.
        back_s: what is kept back beside that, for a look at depth.
    """
    offers = sorted(_offers(pace, attempts, bounds), key=lambda o: o.least)
    needs = "; ".join(f"{offer.attempt.words} needs {ceil(offer.least)} s" for offer in offers)
    beside = f" beside {back_s:.0f} s for a long prompt" if back_s >= 1 else ""
    return f"no time left to try more: {needs}; {max(int(left_s), 0)} s are left{beside}, --budget SECONDS gives more"


def forecast(
    pace: Pace, attempts: tuple[Attempt, ...], bounds: Bounds, left_s: float, most: int
) -> tuple[Forecast, ...]:
    """What would run, in order, if nothing were kept and trials were as short as they can be; then what would not."""
    found: list[Forecast] = []
    open_ = attempts
    while len(found) < most and (choice := choose(pace, open_, bounds, left_s, most - len(found))) is not None:
        found.append(Forecast(choice.attempt, choice.prompt_n, choice.seconds, fits=True))
        left_s -= choice.seconds
        open_ = tuple(attempt for attempt in open_ if attempt is not choice.attempt)
    rest = (Forecast(o.attempt, o.costs[-1][0], o.least, fits=False) for o in _offers(pace, open_, bounds))
    return (*found, *rest)
