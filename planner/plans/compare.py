"""Words for a road not taken: one candidate against the chosen one."""

from __future__ import annotations

from typing import Final

from planner import units
from planner.facts.reading import Source
from planner.facts.workload import Goal, Workload
from planner.plans.decision import Alternative, Fate, Scalar
from planner.plans.plan import Candidate

EQUAL: Final = 0.005
"""Times of a turn within this share are told as equal."""


def given(*fields: str, work: Workload) -> Source:
    """Whether these fields of the workload are the user's, or defaults: assumptions of ours."""
    usual = Workload()
    changed = any(getattr(work, field) != getattr(usual, field) for field in fields)
    return Source.USER if changed else Source.ASSUMED


def cost(candidate: Candidate, goal: Goal) -> float:
    """What the goal wants small: seconds of a turn, of an answer token or of a prompt token (mid-points)."""
    speed = candidate.speed
    if goal is Goal.DECODE:
        return 1.0 / speed.decode_tps.mid
    if goal is Goal.PREFILL:
        return 1.0 / speed.prefill_tps.mid
    return speed.turn_s.mid


def fate(item: Alternative) -> str:
    """What became of an alternative, in words; one may be faster alone, as a shorter context is."""
    if item.outcome is Fate.SLOWER and item.by is not None and item.by < 1.0 + EQUAL:
        return "no faster" if item.by > 1.0 - EQUAL else "faster"
    return item.outcome.value.replace("_", " ")


def versus(value: Scalar, other: Candidate, chosen: Candidate, goal: Goal) -> Alternative:
    """``value`` would have made ``other``: does it fit, and how much slower is it by ``goal``?"""
    if other.objections:
        return Alternative(value, Fate.UNSUPPORTED, None, f"llama.cpp would not start: {other.objections[0]}")
    if other.shortfalls:
        worst = max(other.shortfalls, key=lambda s: s.needed_bytes - s.available_bytes)
        short = worst.needed_bytes - worst.available_bytes
        return Alternative(value, Fate.DOES_NOT_FIT, short, f"{worst.device} would be {units.mib(short)} short")
    factor = cost(other, goal) / cost(chosen, goal)
    spoken = "" if abs(factor - 1.0) < EQUAL else f"{factor:.2f}x the time: "
    prefill, decode = other.speed.prefill_tps.mid, other.speed.decode_tps.mid
    detail = f"{spoken}prefill {units.number(prefill)}, decode {units.number(decode)} tok/s predicted"
    return Alternative(value, Fate.SLOWER, round(factor, 4), detail)
