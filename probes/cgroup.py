"""Limits of the control group we run in, v1 and v2: the smallest on the way up to the root wins.

Source: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. Compare with
``cat /sys/fs/cgroup/memory.max`` or ``memory/memory.limit_in_bytes``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from planner.facts.machine import Os
from probes import mounts
from probes.host import Host
from probes.probe import Absent, Found, Outcome, Request, Seen
from probes.text import whole

_NO_LIMIT: Final = 1 << 60
"""v1 writes "no limit" as the largest multiple of the page size below 2^63."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the group may use; None is unlimited or unknown.

    Args:
        memory_bytes: hard limit.
        left_bytes: the smallest (limit - what the group holds and cannot drop) over all levels.
        swap: False if the group may not swap.
        cpus: CPU time per wall time, e.g. 2.5.
    """

    memory_bytes: int | None = None
    left_bytes: int | None = None
    swap: bool | None = None
    cpus: float | None = None


@dataclass(frozen=True, slots=True)
class _Names:
    """File names of one controller version."""

    limit: str
    usage: str
    cache: str
    swap: str


_V1: Final = _Names(
    "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.memsw.limit_in_bytes"
)
_V2: Final = _Names("memory.max", "memory.current", "inactive_file", "memory.swap.max")


def read(host: Host, _request: Request, _seen: Seen) -> Outcome[Limits]:
    text = host.read_text("/proc/self/cgroup") if host.os is Os.LINUX else None
    if text is None:
        return Absent("no control groups on this system")
    groups = parse_self(text)
    found = Limits()
    for mount in mounts.read(host):
        if mount.kind == "cgroup2" and "" in groups:
            for folder in _levels(mount, groups[""]):
                found = _tighter(found, _memory(host, folder, _V2))
                found = _tighter(found, Limits(cpus=parse_cpu_max(host.read_text(folder + "/cpu.max"))))
        elif mount.kind == "cgroup":
            for controller in ("memory", "cpu"):
                if controller in mount.options and controller in groups:
                    for folder in _levels(mount, groups[controller]):
                        v1 = _memory(host, folder, _V1) if controller == "memory" else _cpu_v1(host, folder)
                        found = _tighter(found, v1)
    return Absent("the control group sets no limit") if found == Limits() else Found(found)


def parse_self(text: str) -> dict[str, str]:
    """``/proc/self/cgroup`` → path by v1 controller; the v2 group under ``""``."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            paths.update({name: parts[2] for name in parts[1].split(",")})
    return paths


def parse_limit(text: str | None) -> int | None:
    """A limit file → bytes; ``max``, v1's huge numbers and unreadable text are no limit."""
    number = whole(text)
    return None if number is None or number >= _NO_LIMIT else number


def parse_cpu_max(text: str | None) -> float | None:
    """``cpu.max`` (``"200000 100000"`` or ``"max 100000"``) → CPUs."""
    words = (text or "").split()
    return _quota(words[0], words[1]) if len(words) == 2 else None


def _quota(quota: str | None, period: str | None) -> float | None:
    used, length = whole(quota), whole(period)
    return used / length if used and length else None


def _cpu_v1(host: Host, folder: str) -> Limits:
    quota, period = (host.read_text(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
    return Limits(cpus=_quota(quota, period))


def _levels(mount: mounts.Mount, group: str) -> Iterator[str]:
    """Folders from the group up to the mount point. In a container the mount shows only a part."""
    inside = posixpath.relpath(group, mount.root) if mount.root != "/" else group.lstrip("/")
    if inside.startswith("..") or inside == ".":
        inside = ""
    parts = [part for part in inside.split("/") if part]
    for n in range(len(parts), -1, -1):
        yield posixpath.join(mount.point, *parts[:n])


def _memory(host: Host, folder: str, names: _Names) -> Limits:
    limit = parse_limit(host.read_text(f"{folder}/{names.limit}"))
    if limit is None:
        return Limits()
    swap = parse_limit(host.read_text(f"{folder}/{names.swap}"))
    can_swap = None if swap is None else swap > (limit if names is _V1 else 0)
    usage = whole(host.read_text(f"{folder}/{names.usage}"))
    if usage is None:
        return Limits(limit, None, can_swap)
    cache = parse_stat(host.read_text(folder + "/memory.stat") or "", names.cache)
    return Limits(limit, max(limit - max(usage - cache, 0), 0), can_swap)


def parse_stat(text: str, name: str) -> int:
    """One value of ``memory.stat``, bytes; 0 if it is not listed (nothing is then taken as droppable)."""
    rows = (line.split() for line in text.splitlines())
    return next((whole(row[1]) or 0 for row in rows if len(row) == 2 and row[0] == name), 0)


def _tighter(one: Limits, other: Limits) -> Limits:
    def least(a: float | None, b: float | None) -> float | None:
        return b if a is None else a if b is None else min(a, b)

    memory, left = least(one.memory_bytes, other.memory_bytes), least(one.left_bytes, other.left_bytes)
    swap = False if False in (one.swap, other.swap) else one.swap if other.swap is None else other.swap
    return Limits(
        None if memory is None else int(memory),
        None if left is None else int(left),
        swap,
        least(one.cpus, other.cpus),
    )
