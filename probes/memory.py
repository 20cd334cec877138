"""Host memory. Linux: ``/proc/meminfo``; macOS: ``sysctl`` and ``vm_stat``; elsewhere psutil."""

from __future__ import annotations

import re
from dataclasses import dataclass

from planner.facts.machine import Os
from probes import sysctl
from probes.host import Host
from probes.probe import Failed, Found, Outcome, Request, Seen
from probes.text import whole


@dataclass(frozen=True, slots=True)
class HostRam:
    """Bytes the system has, and what a new program can take without swapping (None: it does not say)."""

    total_bytes: int
    available_bytes: int | None


def read(host: Host, _request: Request, _seen: Seen) -> Outcome[HostRam]:
    """Compare with ``free -b``, ``vm_stat`` or the task manager."""
    text = host.read_text("/proc/meminfo")
    if text is not None:
        return Found(parse_meminfo(text))
    if host.os is Os.MACOS:
        total = whole(sysctl.read(host, ("hw.memsize",)).get("hw.memsize"))
        if total:
            return Found(HostRam(total, parse_vm_stat(host.run(("vm_stat",), 2.0).stdout)))
    psutil = host.library("psutil")
    if psutil is None:
        return Failed("no /proc/meminfo, and psutil is not installed")
    memory = psutil.virtual_memory()
    return Found(HostRam(int(memory.total), int(memory.available)))


def parse_meminfo(text: str) -> HostRam:
    """``/proc/meminfo`` → bytes. Kernels before 3.14 have no MemAvailable: free and cache stand in.

    Raises:
        ValueError: no MemTotal, or a unit other than kB.
    """
    fields: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        number = whole(words[0]) if words else None
        if number is None or not name.startswith(("Mem", "Buffers", "Cached", "SReclaimable", "Shmem")):
            continue
        if words[1:] != ["kB"]:
            raise ValueError(f"/proc/meminfo: expected {name} in kB, found {' '.join(words[1:]) or 'no unit'}")
        fields[name] = number * 1024
    total = fields.get("MemTotal")
    if not total:
        raise ValueError("/proc/meminfo: no MemTotal")
    available = fields.get("MemAvailable")
    if available is None and "MemFree" in fields:
        cache = sum(fields.get(name, 0) for name in ("Buffers", "Cached", "SReclaimable"))
        available = fields["MemFree"] + max(cache - fields.get("Shmem", 0), 0)
    return HostRam(total, None if available is None else min(available, total))


def parse_vm_stat(text: str) -> int | None:
    """``vm_stat`` → available bytes: free, inactive, speculative and purgeable pages; None if unreadable."""
    page = re.search(r"page size of (\d+) bytes", text)
    counts = dict(re.findall(r"^Pages (free|inactive|speculative|purgeable):\s+(\d+)\.", text, re.MULTILINE))
    if page is None or "free" not in counts:
        return None
    return int(page[1]) * sum(int(n) for n in counts.values())
