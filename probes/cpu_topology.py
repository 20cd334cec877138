"""Which logical CPUs share a core, and which are fast ones, from ``/proc/cpuinfo`` and ``/sys/devices``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from probes.host import Host
from probes.text import cpu_list, whole

_SLOW: Final = 0.7
"""A core below this share of the fastest one's capacity or clock is an efficiency core. Favoured cores of a
uniform processor differ by less than a tenth; Zen 5c, Gracemont and little Arm cores lie below two thirds."""


def cores(host: Host, blocks: Mapping[int, Mapping[str, str]], allowed: frozenset[int]) -> dict[int, str]:
    """Logical CPU → a name for its physical core, for the CPUs we may use."""
    found: dict[int, str] = {}
    for cpu in allowed:
        block = blocks.get(cpu, {})
        if "core id" in block:
            found[cpu] = f"{block.get('physical id', '0')}/{block['core id']}"
        else:
            folder = f"/sys/devices/system/cpu/cpu{cpu}/topology/"
            siblings = host.read_text(folder + "core_cpus_list") or host.read_text(folder + "thread_siblings_list")
            found[cpu] = f"cpus {siblings.strip()}" if siblings else f"cpu {cpu}"
    return found


def fast_cpus(host: Host, allowed: frozenset[int]) -> frozenset[int]:
    """Logical CPUs on performance cores; all of them where cores are alike.

    Intel hybrids name them (``/sys/devices/cpu_core/cpus``); elsewhere the scheduler's ``cpu_capacity``,
    else the highest clock tells.
    """
    named = cpu_list(host.read_text("/sys/devices/cpu_core/cpus") or "")
    if named is not None:
        return allowed & named
    for file in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        first = host.read_text(f"/sys/devices/system/cpu/cpu{min(allowed, default=0)}/{file}")
        if first is None:
            continue
        paths = {cpu: f"/sys/devices/system/cpu/cpu{cpu}/{file}" for cpu in allowed}
        speeds = {cpu: whole(host.read_text(path)) or 0 for cpu, path in paths.items()}
        top = max(speeds.values())
        if min(speeds.values()) < _SLOW * top:
            return frozenset(cpu for cpu, speed in speeds.items() if speed >= _SLOW * top)
    return allowed
