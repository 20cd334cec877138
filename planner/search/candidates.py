"""What the search asks of candidates and settings."""

from __future__ import annotations

from typing import Final

from planner.cost.evaluate import HOST_ID
from planner.facts.workload import Goal
from planner.plans.compare import cost
from planner.plans.memory import total
from planner.plans.plan import Candidate, Verdict
from planner.plans.settings import Settings

TIE: Final = 0.005
"""Costs within this share count as equal: predictions are not sharper. The rules' order of values decides,
then headroom."""

GOAL_TIE: Final = 0.02
"""The same where decode or prefill alone is the goal: of plans that are as good at it, the turn decides."""

CONTEXT_COST: Final = 0.05
"""What a longer context than the shortest may add to a turn, when the context was left open."""


def tie(goal: Goal) -> float:
    """Share within which costs count as equal."""
    return TIE if goal is Goal.TURN else GOAL_TIE


def slack(goal: Goal) -> float:
    """What a longer context may add to the goal's cost."""
    return CONTEXT_COST if goal is Goal.TURN else GOAL_TIE


def equals(found: list[Candidate], goal: Goal) -> list[Candidate]:
    """Those that count as the best: by the goal, then by the turn."""
    least = min(cost(c, goal) for c in found)
    near = [c for c in found if cost(c, goal) <= least * (1.0 + tie(goal))]
    shortest = min(cost(c, Goal.TURN) for c in near)
    return [c for c in near if cost(c, Goal.TURN) <= shortest * (1.0 + TIE)]


def keeps(candidate: Candidate) -> bool:
    """Whether every device keeps its reserve, RAM that it shares included; other RAM is another question."""
    shares = any(device.shared_free_bytes is not None for device in candidate.memory.devices)
    return not candidate.shortfalls if shares else all(short.device == HOST_ID for short in candidate.shortfalls)


def beside(candidate: Candidate) -> dict[str, int]:
    """Compute buffer per device."""
    return {device.id: total(device.compute) for device in candidate.memory.devices}


def emptiest(candidate: Candidate) -> int:
    """Bytes that stay free on the fullest device."""
    return min(device.room_bytes for device in candidate.memory.devices)


def combination(settings: Settings) -> tuple[object, ...]:
    """What compute buffers depend on most, besides the context and the rung."""
    return (
        settings.devices, settings.n_ubatch, settings.type_k, settings.type_v, settings.op_offload, settings.spec_type,
    )  # fmt: skip


def healthy(found: list[Candidate]) -> list[Candidate]:
    """Those that do not page, or all if every one does."""
    return [c for c in found if c.verdict is Verdict.FITS] or found
