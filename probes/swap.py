"""What happens when RAM runs out: disk swap, compression, or the end of a process.

Linux: ``/proc/swaps``; macOS always compresses; Windows grows into its page file, and without one an
allocation fails. Compare with ``swapon --show``.
"""

from __future__ import annotations

from planner.facts.machine import Os, Overflow
from probes.host import Host
from probes.probe import Failed, Found, Outcome, Request, Seen
from probes.text import whole


def read(host: Host, _request: Request, _seen: Seen) -> Outcome[Overflow]:
    if host.os is Os.MACOS:
        return Found(Overflow.COMPRESS)
    if host.os is Os.LINUX:
        text = host.read_text("/proc/swaps")
        return Failed("/proc/swaps cannot be read") if text is None else Found(parse(text))
    psutil = host.library("psutil")
    if psutil is None:
        return Failed("psutil is not installed")
    return Found(Overflow.SWAP if psutil.swap_memory().total > 0 else Overflow.NONE)


def parse(text: str) -> Overflow:
    """``/proc/swaps`` → the area the kernel fills first (highest priority); KILL without one.

    zram compresses in RAM; everything else is disk.
    """
    areas = []
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) >= 5:
            size = whole(words[-1].removeprefix("-"))
            priority = -1 if size is None else -size if words[-1].startswith("-") else size
            areas.append((priority, "/zram" not in words[0]))
    if not areas:
        return Overflow.KILL
    return Overflow.SWAP if max(areas)[1] else Overflow.COMPRESS
