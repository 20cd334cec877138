"""How much memory can really be taken: touches pages step by step and stops before the system suffers.

``script_touch.py TARGET STEP`` prints the bytes taken so far after every step, then why it stopped. It stops when
swap grows, when little is left, when a step takes four times as long as the first ones, or at the target. On
Linux the kernel is told to end this process first (``oom_score_adj``). Standard library only.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import time

MIB = 1 << 20
FLOOR = 512 * MIB
SWAPPED = 32 * MIB
SLOWER = 4.0


def meminfo() -> dict[str, int]:
    """``/proc/meminfo`` in bytes; empty where there is none."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            pairs = (line.split(":", 1) for line in file)
            return {name: int(rest.split()[0]) * 1024 for name, rest in pairs}
    except (OSError, ValueError, IndexError):
        return {}


def stop_reason(before: dict[str, int], now: dict[str, int], times: list[float]) -> str:
    """Why not to take another step, or nothing. ``times`` are the seconds of the steps so far."""
    if before.get("SwapFree", 0) - now.get("SwapFree", 0) > SWAPPED:
        return "swap grows"
    if "MemAvailable" in now and now["MemAvailable"] < FLOOR:
        return "little is left"
    if len(times) > 3 and times[-1] > SLOWER * min(times[1:3]) and times[-1] > 0.2:
        return "pages come slowly"
    return ""


def take(target: int, step: int) -> None:
    """Hold what was taken until the end, so that every step adds to it."""
    held: list[mmap.mmap] = []
    times: list[float] = []
    taken = 0
    before = meminfo()
    why = stop_reason(before, before, times)
    while not why and taken < target:
        start = time.monotonic()
        try:
            part = mmap.mmap(-1, step)
        except (OSError, ValueError):
            why = "refused"
            break
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(part)), 1, step)
        held.append(part)
        times.append(time.monotonic() - start)
        taken += step
        sys.stdout.write(f"{taken}\n")
        sys.stdout.flush()
        why = stop_reason(before, meminfo(), times)
    sys.stdout.write(f"{why or 'target'}\n")


def main() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        pass
    take(int(sys.argv[1]), int(sys.argv[2]))


if __name__ == "__main__":
    main()
