"""Read rates of the disk under a model, from the model file itself. Writes nothing.

Random aligned offsets from a fixed seed; blocks of a quarter, one and four expert slices; 1 to 8 reads at once;
then one reader from front to back, and slices touched in a cold mapping, as llama.cpp pages experts. Compare
with ``fio --rw=randread --direct=1 --bs=1M --iodepth=4 --filename=MODEL --readonly``.

A rate above ``IMPOSSIBLE_BPS`` is a cache, here or below a virtual disk, and is rejected. A hole is no read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from planner.facts.machine import Disk, ReadPoint
from planner.facts.model import Model
from planner.facts.reading import Reading
from planner.units import KIB, MIB, size
from probes import figures
from probes.host import Host
from probes.probe import Absent, Failed, Found, Outcome

if TYPE_CHECKING:
    from probes.disk_reads import ModelFile

ALIGN: Final = 4096
DEPTHS: Final = (1, 2, 4, 8)
REPEATS: Final = 3
RUN_S: Final = 0.12
RUN_BYTES: Final = 64 * MIB
"""Caps of one repeat of one point. There are 42 at most: 2.7 GiB and 6 s."""
IMPOSSIBLE_BPS: Final = 32e9
"""No disk reads faster than its link: 31.5 GB/s is PCIe 6.0 x4. A page cache answers with 100 GB/s and more."""
COLD_BYTES: Final = 16 * MIB
"""The same where the page cache must be emptied of what is read: a warm cache is worth more than a figure."""
DENSE_SLICE: Final = MIB
"""Block size for a model without experts."""
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "hugetlbfs"})
SEED: Final = 20240401
TRIES: Final = 4
"""Offsets drawn for every one that is needed, because holes and cached ranges are passed over."""


def blocks(slice_bytes: int, file_bytes: int) -> tuple[int, ...]:
    """A quarter, one and four slices, aligned, each at most a sixteenth of the file, ascending."""
    wanted = (slice_bytes // 4, slice_bytes, slice_bytes * 4)
    aligned = {max(-(-n // ALIGN) * ALIGN, 4 * KIB) for n in wanted}
    return tuple(sorted(n for n in aligned if n <= max(file_bytes // 16, 4 * KIB)))


def shard(model: Model, sizes: Callable[[str], tuple[int, int] | None]) -> str:
    """The largest file of a split model; the first shard often holds a header alone."""
    return max(model.shards or (model.path,), key=lambda path: (sizes(path) or (0, 0))[0])


def nothing(disk: Disk) -> str:
    """Why there is no disk to measure; empty if there is one."""
    return f"{disk.filesystem} lies in RAM: there is no disk to measure" if disk.filesystem in IN_MEMORY else ""


def measure(host: Host, model: Model, seconds: float) -> Outcome[dict[str, Any]]:
    """The read curve, the sequential and the mapped rate.

    Args:
        seconds: what it may take; points that no longer fit are left out.
    """
    from probes.disk_reads import ModelFile, ReadHang

    path = shard(model, host.stamp)
    try:
        with ModelFile(path) as file:
            if file.held_bytes * 2 < file.size:
                hollow = f"only {size(file.held_bytes)} of {size(file.size)} are on the disk"
                return Absent(f"the file is hollow ({hollow}): a hole measures nothing")
            wanted = model.expert_slice_bytes or DENSE_SLICE
            if not blocks(wanted, file.size):
                return Absent(f"a file of {size(file.size)} is too small")
            return _Bench(host, file, wanted, seconds).run()
    except ValueError as error:
        return Absent(str(error))
    except ReadHang:
        return Failed("a read did not come back")
    except OSError as error:
        return Failed(error.strerror or str(error))


class _Bench:
    """One pass over a file."""

    def __init__(self, host: Host, file: ModelFile, slice_bytes: int, seconds: float) -> None:
        from random import Random

        self._host, self._file = host, file
        self._end = host.clock() + seconds
        self._run_s = min(RUN_S, seconds / 50)
        self._blocks = blocks(slice_bytes, file.size)
        self._slice = min(self._blocks, key=lambda block: abs(block - slice_bytes))
        self._random = Random(SEED)
        self._rejected: list[str] = []

    def run(self) -> Outcome[dict[str, Any]]:
        file = self._file
        curve = [
            {"block_bytes": block, "queue_depth": depth, **figures.to_json(reading)}
            for depth in DEPTHS
            for block in self._blocks
            if (reading := self._point(file.read_rate, file.method, block, depth, needs_cold=not file.direct))
        ]
        found: dict[str, Any] = {"curve": curve}
        sequential = self._sequential()
        if sequential is not None:
            found["sequential"] = figures.to_json(sequential)
        mapped = self._point(file.touch_rate, "cold mapping", self._slice, 4, needs_cold=True)
        if mapped is not None:
            found["mapped"] = figures.to_json(mapped)
        if not curve:
            return Absent(self._rejected[0] if self._rejected else "nothing could be read past the page cache")
        return Found(found, "; ".join([file.method, f"{len(curve)} points", *self._rejected[:1]]))

    def _point(
        self, rate: Callable[..., float | None], how: str, block: int, depth: int, *, needs_cold: bool
    ) -> Reading | None:
        began, rates = self._host.clock(), []
        for _ in range(REPEATS):
            if self._host.clock() > self._end:
                break
            n_bytes = COLD_BYTES if needs_cold else RUN_BYTES
            offsets = self._offsets(block, max(n_bytes // block, depth), needs_cold=needs_cold)
            bps = rate(offsets, block, depth, self._run_s) if len(offsets) >= depth else None
            if bps is not None:
                rates.append(bps)
        return self._judged(rates, f"{how}, {block // KIB} KiB x {depth}", began)

    def _sequential(self) -> Reading | None:
        """One reader with large blocks, three stretches of the file."""
        block, began, rates = min(4 * MIB, self._blocks[-1] * 4), self._host.clock(), []
        for _ in range(REPEATS):
            start = self._offsets(block, 1, needs_cold=False)
            if not start or self._host.clock() > self._end:
                break
            stretch = range(start[0], min(self._file.size - block, start[0] + 2 * RUN_BYTES), block)
            offsets = [at for at in stretch if self._file.is_data(at, block)]
            if not self._file.direct:
                for at in offsets:
                    self._file.drop(at, block)
                offsets = [at for at in offsets if self._file.is_cold(at, block)]
            bps = self._file.read_rate(offsets, block, 1, self._run_s) if offsets else None
            if bps is not None:
                rates.append(bps)
        return self._judged(rates, f"{self._file.method}, {block // KIB} KiB in order", began)

    def _judged(self, rates: list[float], method: str, began: float) -> Reading | None:
        if not rates:
            return None
        if max(rates) > IMPOSSIBLE_BPS:
            self._rejected.append(f"rejected {max(rates) / 1e9:,.0f} GB/s: a cache answered")
            return None
        return figures.measured(rates, method, self._host.clock() - began)

    def _offsets(self, block: int, wanted: int, *, needs_cold: bool) -> list[int]:
        """Up to ``wanted`` different aligned offsets of ranges that hold data, cold ones if asked for."""
        slots = self._file.size // block
        drawn = self._random.sample(range(slots), min(TRIES * wanted, slots))
        held = [slot * block for slot in drawn if self._file.is_data(slot * block, block)]
        if not needs_cold:
            return held[:wanted]
        cold = [at for at in held if self._file.is_cold(at, block)][:wanted]  # what is cached stays so if possible
        rest = [at for at in held if at not in cold]
        for at in rest[: wanted - len(cold)]:
            self._file.drop(at, block)
        return [at for at in held if self._file.is_cold(at, block)][:wanted]


def apply(disk: Disk, data: dict[str, Any]) -> Disk:
    """The disk with what was measured. Raises ValueError, KeyError or TypeError for a damaged record."""
    curve = tuple(
        ReadPoint(int(point["block_bytes"]), int(point["queue_depth"]), figures.from_json(point))
        for point in data["curve"]
    )
    if not all(point.block_bytes > 0 and 0 < point.queue_depth <= 65536 for point in curve):
        raise ValueError("a point of no size")
    named = {name: figures.from_json(data[name]) for name in ("sequential", "mapped") if name in data}
    return replace(disk, read_curve=curve, sequential_bps=named.get("sequential"), mapped_bps=named.get("mapped"))
