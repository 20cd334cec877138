"""What the engine says of a plan's memory, held against the prediction for the same settings and program."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from planner.units import MIB

COMPUTE: Final = "compute"


class Ask(StrEnum):
    """Whether the engine confirms the memory; ``stored`` takes the answer of an earlier run and starts nothing."""

    CALL = "call"
    STORED = "stored"
    NEVER = "never"


class Confirmation(StrEnum):
    """``absent``: there was nothing to ask; ``failed``: it was asked and gave no answer."""

    CONFIRMED = "confirmed"
    DISAGREES = "disagrees"
    ABSENT = "absent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of one device, in bytes of whole MiB: the engine rounds down, so the prediction is, too.

    Args:
        device: id of a device, or ``Host``.
        term: ``model``, ``context`` or ``compute``.
    """

    device: str
    term: str
    engine_bytes: int
    predicted_bytes: int

    @property
    def residual_bytes(self) -> int:
        """What the engine needs beyond the prediction; negative if it needs less."""
        return self.engine_bytes - self.predicted_bytes

    @property
    def within(self) -> bool:
        """Model and context to the MiB, either way; compute not under by more than 2 % or 16 MiB."""
        if self.term == COMPUTE:
            return self.residual_bytes <= max(0.02 * self.engine_bytes, 16 * MIB)
        return abs(self.residual_bytes) <= MIB


@dataclass(frozen=True, slots=True)
class Oracle:
    """The engine's word on a plan.

    Args:
        build: of the engine that was asked.
        stored: True for an answer of an earlier run.
        differences: every figure, agreeing or not; empty without an answer.
        reserved: bytes per device that the plan was decided with because the engine needs more.
        reason: why there is no answer; empty where there is one.
    """

    outcome: Confirmation
    build: int | None = None
    stored: bool = False
    differences: tuple[Difference, ...] = ()
    reserved: tuple[tuple[str, int], ...] = ()
    reason: str = ""

    @property
    def engine(self) -> str:
        """``llama.cpp bNNNNN``, or without the build where it does not say."""
        return "llama.cpp" if self.build is None else f"llama.cpp b{self.build}"

    @property
    def residual_bytes(self) -> int:
        """The largest distance of any figure, without its sign."""
        return max((abs(d.residual_bytes) for d in self.differences), default=0)
