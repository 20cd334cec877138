"""``/proc/self/mountinfo``: which file systems are mounted where (proc(5))."""

from __future__ import annotations

import re
from dataclasses import dataclass

from probes.host import Host


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount; ``root`` is the part of the file system that is mounted, ``number`` its ``major:minor``."""

    number: str
    root: str
    point: str
    kind: str
    source: str
    options: tuple[str, ...]


def read(host: Host) -> tuple[Mount, ...]:
    return parse(host.read_text("/proc/self/mountinfo") or "")


def parse(text: str) -> tuple[Mount, ...]:
    """Mounts in kernel order (a later one hides an earlier one at the same point); odd lines are skipped."""
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        head, tail = left.split(" "), right.split(" ")
        if len(head) >= 6 and len(tail) >= 2:
            options = tuple(tail[2].split(",")) if len(tail) > 2 else ()
            found.append(Mount(head[2], _plain(head[3]), _plain(head[4]), tail[0], _plain(tail[1]), options))
    return tuple(found)


def _plain(field: str) -> str:
    """Undo the kernel's octal escapes of blank, tab, newline and backslash."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
