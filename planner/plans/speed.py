"""Predicted speed with its band."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Resource(StrEnum):
    """What the predicted time waits for."""

    RAM = "ram"
    PCIE = "pcie"
    GPU = "gpu"
    DISK = "disk"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True)
class Band:
    low: float
    mid: float
    high: float


@dataclass(frozen=True, slots=True)
class Speed:
    """Rates in tokens per second at the workload's depth; ``turn_s`` for its prompt and answer."""

    decode_tps: Band
    prefill_tps: Band
    turn_s: Band
    bound_by: Resource
