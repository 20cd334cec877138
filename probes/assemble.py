"""Outcomes of all probes → one Machine. The smaller of two limits wins; a driver's GPU figures win."""

from __future__ import annotations

from dataclasses import replace

from planner.errors import MoeplanError
from planner.facts.machine import Cpu, Engine, Machine, Os, Overflow, Ram
from planner.facts.outcome import ProbeReport
from probes import llama_kv
from probes.assemble_gpus import gpus
from probes.cgroup import Limits
from probes.gpu import DriverGpu
from probes.llama_build import Build
from probes.llama_devices import Listed
from probes.memory import HostRam
from probes.probe import Failed, Found, Seen, value

_DRIVERS = ("nvidia", "amd", "apple", "intel")


def machine(os: Os, seen: Seen, reports: tuple[ProbeReport, ...]) -> Machine:
    """The machine, with the probes' reports in it.

    Raises:
        MoeplanError: the size of host memory is unknown, without which nothing can be planned.
    """
    limits: Limits = value(seen, "cgroup") or Limits()
    host_ram: HostRam | None = value(seen, "memory")
    if host_ram is None:
        why = next((report.reason for report in reports if report.name == "memory"), "not asked")
        raise MoeplanError("host memory", expected="its size", found=why, advice="give it with --machine FILE")
    listed: tuple[Listed, ...] = value(seen, "devices") or ()
    drivers = tuple(gpu for name in _DRIVERS for gpu in _found(seen, name))
    return Machine(
        os=os,
        ram=ram(host_ram, limits, value(seen, "swap")),
        cpu=cpu(value(seen, "cpu") or Cpu(), value(seen, "numa"), limits.cpus),
        gpus=gpus(drivers, listed, host_ram.total_bytes),
        disk=value(seen, "storage"),
        engine=engine(value(seen, "engine"), listed, asked=_answered(seen)),
        probes=reports,
    )


def _found(seen: Seen, name: str) -> tuple[DriverGpu, ...]:
    found: tuple[DriverGpu, ...] | None = value(seen, name)
    return found or ()


def _answered(seen: Seen) -> bool:
    """True if the engine listed its devices, even if there were none."""
    return "devices" in seen and not isinstance(seen["devices"], Failed)


def ram(host: HostRam, limits: Limits, overflow: Overflow | None) -> Ram:
    """Memory within the control group: the smaller total, the smaller rest; a group that may not swap is killed."""
    limited = limits.memory_bytes is not None and limits.memory_bytes < host.total_bytes
    total = limits.memory_bytes if limited and limits.memory_bytes is not None else host.total_bytes
    rests = [rest for rest in (host.available_bytes, limits.left_bytes) if rest is not None]
    return Ram(
        total_bytes=total,
        available_bytes=min(*rests, total) if rests else None,
        overflow=Overflow.KILL if limited and limits.swap is False else overflow,
    )


def cpu(found: Cpu, numa_nodes: int | None, quota: float | None) -> Cpu:
    """A CPU quota caps every count: threads beyond it only wait."""

    def capped(count: int | None) -> int | None:
        return count if count is None or quota is None else min(count, max(int(quota), 1))

    return replace(
        found,
        physical_cores=capped(found.physical_cores),
        performance_cores=capped(found.performance_cores),
        logical_cores=capped(found.logical_cores),
        numa_nodes=numa_nodes,
    )


def engine(build: Build | None, listed: tuple[Listed, ...], *, asked: bool) -> Engine | None:
    """``backends`` are those it can use here and now: of listed devices, ``rpc`` if it has the option, ``cpu``
    where no device is listed. Empty if it could not be asked."""
    if build is None:
        return None
    names = dict.fromkeys(device.backend.value for device in listed if device.backend is not None)
    if asked and "--rpc" in build.engine.flags:
        names["rpc"] = None
    if asked and not listed:
        names = {"cpu": None, **names}
    backends = tuple(names)
    return replace(build.engine, backends=backends, kv_pairs_on_gpu=llama_kv.pairs(build.engine.build, backends))


def note(outcome: object) -> str:
    """The reason of an outcome, or what there is to say about a found one."""
    return outcome.note if isinstance(outcome, Found) else getattr(outcome, "reason", "")
