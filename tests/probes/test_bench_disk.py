from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from planner.facts.machine import Disk
from planner.facts.reading import Source
from planner.units import KIB, MIB
from probes import bench_disk, disk_reads
from probes.disk_reads import ModelFile
from probes.host import LocalHost
from probes.probe import Absent, Failed, Found, Outcome

linux = pytest.mark.skipif(sys.platform != "linux", reason="O_DIRECT, holes and mincore are tested on Linux")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 MiB that are on the disk."""
    path = tmp_path_factory.mktemp("disk") / "model.gguf"
    with path.open("wb") as out:
        out.write(random.Random(0).randbytes(16 * MIB))
        os.fsync(out.fileno())
    return path


def model(*paths: Path, slice_bytes: int | None = 256 * KIB) -> Any:
    names = tuple(map(str, paths))
    return SimpleNamespace(path=names[0], shards=names, expert_slice_bytes=slice_bytes)


def measured(*paths: Path) -> Outcome[dict[str, Any]]:
    return bench_disk.measure(LocalHost(), model(*paths), 1.0)


@pytest.mark.parametrize(
    ("slice_bytes", "file_bytes", "sizes"),
    [
        (1290240, 18 << 30, (323584, 1290240, 5160960)),
        (MIB, 8 * MIB, (256 * KIB,)),
        (100, 18 << 30, (4 * KIB,)),
        (20000, 18 << 30, (8 * KIB, 20 * KIB, 80 * KIB)),
        (MIB, 1000, ()),
    ],
)
def test_blocks_are_aligned_and_small_beside_the_file(
    slice_bytes: int, file_bytes: int, sizes: tuple[int, ...]
) -> None:
    found = bench_disk.blocks(slice_bytes, file_bytes)
    assert all(size % bench_disk.ALIGN == 0 for size in found)
    assert found == sizes


def test_the_largest_shard_is_read() -> None:
    sizes = {"a": (5, 0), "b": (9, 0), "c": (7, 0)}
    assert bench_disk.shard(model(Path("a"), Path("b"), Path("c")), sizes.get) == "b"


@linux
def test_a_real_file(file: Path) -> None:
    before = file.stat()
    outcome = measured(file)
    assert isinstance(outcome, Found), outcome
    points = {(point["block_bytes"], point["queue_depth"]) for point in outcome.value["curve"]}
    assert points <= {(block, depth) for block in (64 * KIB, 256 * KIB, MIB) for depth in (1, 2, 4, 8)}
    assert (256 * KIB, 8) in points
    disk = bench_disk.apply(Disk(str(file)), outcome.value)
    assert len(disk.read_curve) == len(points)
    assert all(point.bps.source is Source.MEASURED and point.bps.duration_s is not None for point in disk.read_curve)
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@linux
def test_a_hollow_file_measures_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hollow"
    with path.open("wb") as out:
        out.write(b"GGUF" * 1024)
        out.truncate(1 << 30)
    outcome = measured(path)
    assert isinstance(outcome, Absent) and "hollow" in outcome.reason


@linux
def test_holes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "holes"
    with path.open("wb") as out:
        out.write(random.Random(1).randbytes(4 * MIB))
        out.seek(6 * MIB)
        out.write(random.Random(2).randbytes(2 * MIB))
        out.truncate(9 * MIB)
        os.fsync(out.fileno())
    with ModelFile(str(path)) as opened:
        if opened.held_bytes > 7 * MIB:
            pytest.skip("this file system keeps no holes")
        data = [opened.is_data(n * MIB, MIB) for n in range(9)]
    assert data == [True] * 4 + [False] * 2 + [True] * 2 + [False]


@linux
def test_without_direct_reads_the_cache_is_dropped_first(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelFile, "_go_direct", lambda self, path: None)
    outcome = measured(file)
    if isinstance(outcome, Absent):
        pytest.skip(f"this file system keeps its pages: {outcome.reason}")
    assert isinstance(outcome, Found), outcome
    assert outcome.note.startswith("buffered, cache dropped")


@linux
def test_pages_that_stay_cached_are_not_measured(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelFile, "_go_direct", lambda self, path: None)
    monkeypatch.setattr(ModelFile, "drop", lambda self, offset, length: None)
    file.read_bytes()
    outcome = measured(file)
    assert isinstance(outcome, Absent) and "page cache" in outcome.reason


@linux
def test_a_rate_no_disk_reaches_is_rejected(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelFile, "read_rate", lambda *_: 116e9)
    outcome = measured(file)
    assert isinstance(outcome, Absent) and outcome.reason == "rejected 116 GB/s: a cache answered"


def raising(error: Exception) -> Callable[..., float]:
    def read_rate(*_: object) -> float:
        raise error

    return read_rate


@linux
@pytest.mark.parametrize(
    ("error", "reason"), [(OSError(5, "Input/output error"), "Input/output"), (disk_reads.ReadHang(), "come back")]
)
def test_a_disk_that_fails(file: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str) -> None:
    monkeypatch.setattr(ModelFile, "read_rate", raising(error))
    outcome = measured(file)
    assert isinstance(outcome, Failed) and reason in outcome.reason


@linux
def test_a_read_that_fails_in_a_lane_is_told(file: Path) -> None:
    with ModelFile(str(file)) as opened, pytest.raises(OSError):
        opened.read_rate([-4096], 4096, 2, 0.1)


@linux
def test_lanes_read_no_more_after_an_interrupt(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is closed by then, and its number may be that of another one."""
    reads, release, read = threading.Event(), threading.Event(), list[int]()

    def preadv(fd: int, buffers: list[Any], offset: int) -> int:
        read.append(offset)
        reads.set()
        release.wait(60)
        return len(buffers[0])

    def interrupt() -> None:
        reads.wait(60)
        time.sleep(0.2)  # the main thread joins by now
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), ModelFile(str(file)) as opened:
        monkeypatch.setattr(os, "preadv", preadv)
        threading.Thread(target=interrupt, daemon=True).start()
        opened.read_rate([0, 4096, 8192], 4096, 1, 60.0)
    release.set()
    time.sleep(0.2)
    assert read == [0]


def test_a_missing_file(tmp_path: Path) -> None:
    assert isinstance(measured(tmp_path / "none"), Failed | Absent)


def test_a_file_in_memory_has_no_disk() -> None:
    assert "lies in RAM" in bench_disk.nothing(Disk("/dev/shm/x", "tmpfs"))
    assert bench_disk.nothing(Disk("/x", "ext4")) == ""


@pytest.mark.parametrize(
    "data",
    [{}, {"curve": 5}, {"curve": [{}]}, {"curve": [{"block_bytes": 0, "queue_depth": 1, "value": 1.0, "method": ""}]}],
)
def test_a_damaged_record(data: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        bench_disk.apply(Disk("/x"), data)
