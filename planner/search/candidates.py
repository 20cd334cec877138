"""What the search asks of candidates and settings."""

from __future__ import annotations

from planner.cost.evaluate import HOST_ID
from planner.plans.memory import total
from planner.plans.plan import Candidate, Verdict
from planner.plans.settings import Settings


def keeps(candidate: Candidate) -> bool:
    """Whether every device keeps its reserve; RAM is another question."""
    return all(short.device == HOST_ID for short in candidate.shortfalls)


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
