"""A graphics processor as its driver reports it, before llama.cpp's name for it is known."""

from __future__ import annotations

from dataclasses import dataclass

from planner.facts.machine import Backend, DriverModel
from planner.facts.reading import Reading


@dataclass(frozen=True, slots=True)
class DriverGpu:
    """One device.

    Args:
        key: identity that stays across runs (UUID or PCI address).
        backend: the backend its vendor's tools use; a llama.cpp build may reach it through another.
        total_bytes, used_bytes, free_bytes: None where the driver has no memory of its own to report.
        unified: shares host RAM.
        driver: version of the kernel driver.
        threads: that all its multiprocessors hold at once.
    """

    key: str
    name: str | None
    backend: Backend
    driver_model: DriverModel
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    unified: bool = False
    memory_bps: Reading | None = None
    h2d_pinned_bps: Reading | None = None
    driver: str | None = None
    threads: int | None = None
