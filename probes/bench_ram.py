"""Read bandwidth of RAM by thread count.

``memcmp`` of the C library over the two halves of a buffer, which are equal, so it reads every byte and writes
none; one disjoint part per thread (ctypes gives up the interpreter's lock for the call). The buffer is four
times the last-level cache, so that a scan finds little of the one before. Compare with STREAM or ``mlc``;
``benchmarks/probes`` compares it with a vectorised sum in C.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from math import ceil
from typing import Any, Final

from planner import units
from planner.facts.machine import Cpu, Machine, Os
from planner.units import GIB, MIB
from probes import figures, sysctl
from probes.host import Host
from probes.probe import Absent, Found, Outcome
from probes.text import whole

REPEATS: Final = 5
CACHES: Final = 4
"""Working set in last-level caches."""
SMALLEST: Final = 256 * MIB
LARGEST: Final = 4 * GIB
CACHE_IF_UNKNOWN: Final = 64 * MIB
SCAN_S: Final = 0.06
"""A repeat lasts at least that long: starting 16 threads takes about a millisecond."""
TIE: Final = 0.02
"""Thread counts whose rates differ by less are equal; the smaller one wins."""


def last_level_cache(host: Host) -> int | None:
    """Bytes of all last-level caches of the machine; None if it does not say.

    Linux: ``/sys/devices/system/cpu/cpu*/cache/index*`` (Documentation/ABI/testing/sysfs-devices-system-cpu),
    each cache once, whoever shares it. macOS: ``hw.l3cachesize`` and ``hw.perflevel0.l2cachesize``.
    """
    if host.os is Os.MACOS:
        found = sysctl.read(host, ("hw.l3cachesize", "hw.perflevel0.l2cachesize")).values()
        return max((size for text in found if (size := whole(text))), default=None)
    caches: dict[tuple[int, str], int] = {}
    for folder in host.glob("/sys/devices/system/cpu/cpu[0-9]*/cache/index[0-9]*"):
        level, size = whole(host.read_text(f"{folder}/level")), parse_size(host.read_text(f"{folder}/size"))
        if level and size:
            caches[level, (host.read_text(f"{folder}/shared_cpu_list") or folder).strip()] = size
    deepest = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == deepest) or None


def parse_size(text: str | None) -> int | None:
    """``"266240K"`` → bytes."""
    digits = (text or "").strip()
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(digits[-1:], 1)
    number = whole(digits.rstrip("KMG"))
    return number * factor if number else None


def working_set(cache: int | None, available: int | None) -> int | None:
    """Bytes to scan; None where a quarter of the free memory does not reach past the cache."""
    wanted = min(max(CACHES * (cache or CACHE_IF_UNKNOWN), SMALLEST), LARGEST)
    size = wanted if available is None else min(wanted, available // 4)
    return size & -(2 * MIB) if size >= 2 * (cache or 0) and size >= 64 * MIB else None


def thread_counts(cpu: Cpu) -> tuple[int, ...]:
    """1, 2, 4, … up to the physical cores, three quarters of them, and the performance cores. Never a sibling."""
    most = cpu.physical_cores or cpu.performance_cores or 1
    counts = {most, most * 3 // 4, cpu.performance_cores or most, *(1 << n for n in range(most.bit_length()))}
    return tuple(sorted(count for count in counts if 1 <= count <= most))


def fewest_threads(rates: Iterable[tuple[int, float]]) -> int:
    """The smallest thread count within ``TIE`` of the best rate."""
    pairs = sorted(rates)
    best = max(rate for _, rate in pairs)
    return next(count for count, rate in pairs if rate >= best * (1 - TIE))


def measure(host: Host, machine: Machine, seconds: float) -> Outcome[dict[str, Any]]:
    """Rates by thread count. Repeats end when ``seconds`` are over."""
    cache = last_level_cache(host)
    size = working_set(cache, machine.ram.available_bytes)
    if size is None:
        return Absent("too little free memory for a working set beyond the last-level cache")
    counts = thread_counts(machine.cpu)
    times: dict[int, list[float]] = {count: [] for count in counts}
    buffer = _Buffer(size, host.os)
    end = host.clock() + seconds
    first = {count: buffer.scan(count, 1, host.clock) for count in counts}  # warms up, and is not counted
    passes = {count: ceil(SCAN_S / taken) for count, taken in first.items()}
    for turn in range(REPEATS):
        if turn and host.clock() > end:
            break
        for count in counts:  # in turns, so that a busy moment hits all counts alike
            times[count].append(buffer.scan(count, passes[count], host.clock))
    results = [_result(count, size, taken) for count, taken in times.items()]
    note = "; ".join(f"{units.counted(item['threads'], 'thread')} {item['value'] / 1e9:.1f} GB/s" for item in results)
    if (machine.cpu.numa_nodes or 1) > 1:
        note += "; memory of one NUMA node"
    if cache is None:
        note += f"; size of the last-level cache not known, {CACHE_IF_UNKNOWN // MIB} MiB assumed"
    return Found({"threads": results}, note)


def _result(count: int, size: int, seconds: list[float]) -> dict[str, Any]:
    method = f"memcmp of {size // MIB} MiB by {units.counted(count, 'thread')}"
    reading = figures.measured([size / taken for taken in seconds], method, sum(seconds))
    return {"threads": count, **figures.to_json(reading)}


class _Buffer:
    """Anonymous memory whose halves are equal. Every page is written once: unwritten ones share one zero page.

    It goes with the last who holds it, and a thread that reads holds it: after an interrupt one may still read, and
    a thread whose ``join`` was interrupted is not alive to CPython 3.11.
    """

    def __init__(self, size: int, system: Os) -> None:
        import ctypes
        import mmap

        library = ctypes.CDLL("ucrtbase" if system is Os.WINDOWS else None)
        self._compare = library.memcmp
        self._compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self._size = size
        self._view = ctypes.c_char.from_buffer(mmap.mmap(-1, size))
        self._start = ctypes.addressof(self._view)
        ctypes.memset(self._start, 1, size)

    def scan(self, threads: int, passes: int, clock: Callable[[], float]) -> float:
        """Seconds to read all of it once, by ``passes`` passes."""
        part = self._size // threads & -4096
        gate = threading.Barrier(threads + 1)

        def read(at: int) -> None:
            gate.wait()
            for _ in range(passes):
                self._compare(at, at + part // 2, part // 2)

        team = [threading.Thread(target=read, args=(self._start + n * part,), daemon=True) for n in range(threads)]
        for thread in team:
            thread.start()
        gate.wait()
        start = clock()
        for thread in team:
            thread.join()
        return max(clock() - start, 1e-9) * self._size / (part * threads * passes)
