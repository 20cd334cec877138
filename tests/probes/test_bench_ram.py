from __future__ import annotations

import mmap
import os
import signal
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from planner.facts.machine import Cpu, Machine, Os, Ram
from planner.units import GIB, KIB, MIB
from probes import bench_ram
from probes.host import LocalHost
from probes.probe import Absent, Found


@pytest.mark.parametrize(
    ("text", "size"),
    [("266240K\n", 260 * MIB), ("32M", 32 * MIB), ("512", 512), ("", None), (None, None), ("xK", None)],
)
def test_sizes_of_sysfs(text: str | None, size: int | None) -> None:
    assert bench_ram.parse_size(text) == size


def caches(root: Path, *lines: tuple[int, int, int, str]) -> LocalHost:
    """A machine with caches ``(cpu, level, KiB, shared with)``."""
    for cpu, level, kib, shared in lines:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{level}"
        folder.mkdir(parents=True)
        (folder / "level").write_text(f"{level}\n")
        (folder / "size").write_text(f"{kib}K\n")
        (folder / "shared_cpu_list").write_text(shared + "\n")
    return LocalHost(root=str(root))


def test_each_last_level_cache_counts_once(tmp_path: Path) -> None:
    lines = [(cpu, 2, 1024, str(cpu)) for cpu in range(4)]
    two_dies = [(0, 3, 32768, "0-1"), (1, 3, 32768, "0-1"), (2, 3, 32768, "2-3"), (3, 3, 32768, "2-3")]
    assert bench_ram.last_level_cache(caches(tmp_path, *lines, *two_dies)) == 64 * MIB


def test_without_a_third_level_the_second_counts(tmp_path: Path) -> None:
    assert bench_ram.last_level_cache(caches(tmp_path, (0, 2, 4096, "0-3"), (1, 2, 4096, "0-3"))) == 4 * MIB


def test_caches_that_are_not_told(tmp_path: Path) -> None:
    assert bench_ram.last_level_cache(LocalHost(root=str(tmp_path))) is None


@pytest.mark.parametrize(
    ("cache", "available", "size"),
    [
        (260 * MIB, 64 * GIB, 1040 * MIB),
        (8 * MIB, 64 * GIB, 256 * MIB),
        (None, 64 * GIB, 256 * MIB),
        (2 * GIB, 256 * GIB, 4 * GIB),
        (260 * MIB, 3 * GIB, 768 * MIB),
        (260 * MIB, 2 * GIB, None),
        (8 * MIB, 128 * MIB, None),
        (8 * MIB, None, 256 * MIB),
    ],
)
def test_working_set_reaches_past_the_cache(cache: int | None, available: int | None, size: int | None) -> None:
    assert bench_ram.working_set(cache, available) == size


@pytest.mark.parametrize(
    ("cpu", "counts"),
    [
        (Cpu(physical_cores=8, performance_cores=8, logical_cores=16), (1, 2, 4, 6, 8)),
        (Cpu(physical_cores=24, performance_cores=8, logical_cores=32), (1, 2, 4, 8, 16, 18, 24)),
        (Cpu(physical_cores=6, logical_cores=12), (1, 2, 4, 6)),
        (Cpu(physical_cores=1), (1,)),
        (Cpu(logical_cores=16), (1,)),
    ],
)
def test_no_thread_on_a_sibling(cpu: Cpu, counts: tuple[int, ...]) -> None:
    assert bench_ram.thread_counts(cpu) == counts


@pytest.mark.parametrize(
    ("rates", "fewest"),
    [
        ([(1, 10.0), (2, 20.0), (4, 30.0)], 4),
        ([(1, 10.0), (2, 29.5), (4, 30.0)], 2),
        ([(4, 30.0), (1, 29.0), (2, 29.3)], 4),
        ([(1, 30.0), (2, 20.0)], 1),
    ],
)
def test_ties_take_fewer(rates: list[tuple[int, float]], fewest: int) -> None:
    assert bench_ram.fewest_threads(rates) == fewest


def test_a_real_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_ram, "last_level_cache", lambda host: 16 * MIB)
    monkeypatch.setattr(bench_ram, "SMALLEST", 64 * MIB)
    outcome = bench_ram.measure(LocalHost(), Machine(Os.LINUX, Ram(4 * GIB, 2 * GIB), Cpu(physical_cores=2)), 5.0)
    assert isinstance(outcome, Found)
    assert [item["threads"] for item in outcome.value["threads"]] == [1, 2]
    for item in outcome.value["threads"]:
        words = "by 1 thread," if item["threads"] == 1 else f"by {item['threads']} threads,"
        assert words in item["method"]
        assert 1e8 < item["value"] < 2e12 and item["spread"] >= 0 and "memcmp of 64 MiB" in item["method"]


def test_too_little_memory() -> None:
    machine = Machine(Os.LINUX, Ram(GIB, 100 * KIB))
    assert isinstance(bench_ram.measure(LocalHost(), machine, 5.0), Absent)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupt_leaves_the_buffer_to_the_thread_that_still_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the thread reads where nothing is: a segmentation fault."""
    reads, release = threading.Event(), threading.Event()
    maps: list[weakref.ref[mmap.mmap]] = []
    real = mmap.mmap

    def recorded(*args: int) -> mmap.mmap:
        made = real(*args)
        maps.append(weakref.ref(made))
        return made

    def wait(*_: int) -> None:
        reads.set()
        release.wait(60)

    class Slow(bench_ram._Buffer):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._compare = wait

    monkeypatch.setattr(mmap, "mmap", recorded)
    monkeypatch.setattr(bench_ram, "_Buffer", Slow)
    threading.Thread(target=interrupt_main_after, args=(reads,), daemon=True).start()
    interrupted = False
    try:
        bench_ram.measure(LocalHost(), Machine(Os.LINUX, Ram(64 * GIB, 32 * GIB), Cpu(physical_cores=1)), 5.0)
    except KeyboardInterrupt:
        interrupted = True
    held = maps[0]()
    assert interrupted and held is not None and not held.closed
    del held
    release.set()
    end = time.monotonic() + 10
    while maps[0]() is not None and time.monotonic() < end:
        time.sleep(0.01)
    assert maps[0]() is None


def interrupt_main_after(event: threading.Event) -> None:
    event.wait(60)
    time.sleep(0.2)  # the main thread joins by now
    os.kill(os.getpid(), signal.SIGINT)
