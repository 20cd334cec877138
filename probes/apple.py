"""Apple GPUs share RAM; Metal lets a process use a part of it (``recommendedMaxWorkingSetSize``).

The limit is ``iogpu.wired_limit_mb`` where the user has set it; else macOS's default, which is about three
quarters of RAM above 36 GB and two thirds below. The default is derived here, llama.cpp's own figure wins.
Raise it with ``sudo sysctl iogpu.wired_limit_mb=N``.
"""

from __future__ import annotations

from planner.facts.machine import Backend, DriverModel, Os
from planner.units import GIB, MIB
from probes import sysctl
from probes.gpu import DriverGpu
from probes.host import Host
from probes.probe import Absent, Failed, Found, Outcome, Request, Seen
from probes.text import clean, whole

_NAMES = ("hw.memsize", "iogpu.wired_limit_mb", "machdep.cpu.brand_string", "hw.optional.arm64")


def read(host: Host, _request: Request, _seen: Seen) -> Outcome[tuple[DriverGpu, ...]]:
    if host.os is not Os.MACOS:
        return Absent("not a Mac")
    values = sysctl.read(host, _NAMES)
    if values.get("hw.optional.arm64") != "1":
        return Absent("an Intel Mac: its GPU is known only to llama.cpp")
    total = whole(values.get("hw.memsize"))
    if not total:
        return Failed("sysctl does not tell hw.memsize")
    limit, note = working_set(total, whole(values.get("iogpu.wired_limit_mb")))
    name = values.get("machdep.cpu.brand_string")
    gpu = DriverGpu(
        key="metal",
        name=clean(name) if name else None,
        backend=Backend.METAL,
        driver_model=DriverModel.METAL,
        total_bytes=limit,
        unified=True,
    )
    return Found((gpu,), note)


def working_set(ram_bytes: int, wired_limit_mib: int | None) -> tuple[int, str]:
    """Bytes Metal allows, and how that is known. ``wired_limit_mib`` 0 means the default."""
    if wired_limit_mib:
        limit = min(wired_limit_mib * MIB, ram_bytes)
        return limit, "working set limit as set by iogpu.wired_limit_mb"
    share = (3, 4) if ram_bytes > 36 * GIB else (2, 3)
    return (
        ram_bytes * share[0] // share[1],
        f"working set limit derived: {share[0]}/{share[1]} of RAM, macOS's default",
    )
