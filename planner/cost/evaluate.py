"""Settings → candidate: memory, speed, what is short, and whether it pages. Memoised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from planner.cost.correction import corrected
from planner.cost.model import CostModel
from planner.cost.speed import SpeedModel
from planner.cost.startable import objections
from planner.facts.machine import DriverModel, Machine, Os
from planner.facts.workload import Workload
from planner.plans.memory import Memory
from planner.plans.plan import Candidate, Shortfall, Verdict
from planner.plans.settings import Settings

if TYPE_CHECKING:
    from planner.facts.observed import Verified

Reserve = tuple[tuple[str, int], ...]

HOST_ID = "host"
"""Host memory in reserves and shortfalls."""


def budgeted(machine: Machine, workload: Workload) -> Machine:
    """The machine with the user's ``--vram`` and ``--ram`` in place of what is free now.

    ``--vram SIZE`` is what this plan may see as free on the device (headroom still comes off);
    ``--ram SIZE`` likewise for RAM.
    """
    given = dict(workload.vram_bytes)
    gpus = []
    for gpu in machine.gpus:
        if machine.os is Os.WINDOWS and gpu.driver_model is None:
            gpu = replace(gpu, driver_model=DriverModel.WDDM)  # the driver model nearly every card there has
        free = given.get(gpu.id, given.get(""))
        if free is not None:
            total = max(gpu.total_bytes, free)
            gpu = replace(gpu, total_bytes=total, used_bytes=total - free, free_bytes=free)
        gpus.append(gpu)
    ram = machine.ram
    if workload.ram_bytes is not None:
        total = max(ram.total_bytes, workload.ram_bytes)
        ram = replace(ram, total_bytes=total, available_bytes=workload.ram_bytes)
    return replace(machine, gpus=tuple(gpus), ram=ram)


class _Key(NamedTuple):
    settings: Settings
    reserve: Reserve
    bound: bool


@dataclass(frozen=True, slots=True)
class Known:
    """Memory that was counted before, with and without compute buffers."""

    whole: dict[Settings, Memory] = field(default_factory=dict)
    floor: dict[Settings, Memory] = field(default_factory=dict)


class Evaluator:
    """Prices settings for one problem. Memory does not depend on the workload and is shared between workloads."""

    def __init__(
        self,
        cost: CostModel,
        workload: Workload,
        verified: Verified | None = None,
        known: Known | None = None,
    ) -> None:
        self.cost, self.machine, self.model = cost, cost.machine, cost.model
        self._workload, self._verified = workload, verified
        self._speed = SpeedModel(self.model, self.machine, workload, cost.pools)
        self._memo: dict[_Key, Candidate] = {}
        self._known = known or Known()

    def under(self, workload: Workload) -> Evaluator:
        """The same model and machine under another workload."""
        return Evaluator(self.cost, workload, self._verified, self._known)

    def memory(self, settings: Settings) -> Memory:
        """Memory alone: what the search asks of most settings."""
        found = self._known.whole.get(settings)
        if found is None:
            found = self._known.whole[settings] = self.cost.memory(settings)
        return found

    def floor(self, settings: Settings) -> Memory:
        """Memory without compute buffers: cheap, never more than ``memory``."""
        found = self._known.floor.get(settings)
        if found is None:
            found = self._known.floor[settings] = self.cost.memory(settings, compute=False)
        return found

    def candidate(self, settings: Settings, reserve: Reserve) -> Candidate:
        """Memory, speed, verdict and shortfalls under ``reserve`` (bytes to keep free per device or ``host``)."""
        return self._priced(_Key(settings, reserve, bound=False))

    def bound(self, settings: Settings, reserve: Reserve) -> Candidate:
        """The candidate without its compute buffers: cheap, never larger, never short where the real one is not."""
        return self._priced(_Key(settings, reserve, bound=True))

    def shortfalls(self, memory: Memory, reserve: Reserve) -> tuple[Shortfall, ...]:
        """Devices whose own room would be under the reserve, and the host if it cannot hold what is pinned."""
        keep = dict(reserve)
        short = [
            Shortfall(
                device.id,
                device.predicted_bytes,
                max(device.total_bytes - device.used_before_bytes - keep.get(device.id, 0), 0),
            )
            for device in memory.devices
            if device.room_bytes < keep.get(device.id, 0)
        ]
        return (*short, *self._host_shortfalls(memory, keep.get("host", 0)))

    def ram_holds(self, memory: Memory, margin: int) -> bool:
        """Whether RAM holds what must stay in it beside ``margin`` bytes."""
        return not any(self._host_shortfalls(memory, margin))

    def _host_shortfalls(self, memory: Memory, margin: int) -> Iterator[Shortfall]:
        """RAM that cannot hold what must stay in it, devices that share it included; and the limit on pinning."""
        host = memory.host
        needed, left = host.unevictable_bytes, max(self._ram(memory) - margin, 0)
        if needed > left:
            yield Shortfall(HOST_ID, needed, left)
            return
        limit = pinned_limit(self.machine)
        if limit is not None and host.pinned_bytes > limit:
            yield Shortfall(HOST_ID, host.pinned_bytes, limit)

    def _ram(self, memory: Memory) -> int:
        """RAM that can be used: what is available, or all of it where that is not known."""
        available = memory.host.available_bytes
        return self.machine.ram.total_bytes if available is None else available

    def _priced(self, key: _Key) -> Candidate:
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._price(key)
        return found

    def _price(self, key: _Key) -> Candidate:
        settings, reserve = key.settings, key.reserve
        memory = self.floor(settings) if key.bound else self.memory(settings)
        layers = self.cost.layers_on(settings)
        shares = self.cost.host_shares(settings)
        resident = self._resident(memory)
        speed = self._speed.speed(settings, layers, shares, resident)
        return Candidate(
            settings=settings,
            memory=memory,
            speed=corrected(speed, self._verified, settings.devices, self._workload),
            verdict=Verdict.FITS if resident >= 1.0 else Verdict.PAGES,
            shortfalls=self.shortfalls(memory, reserve),
            objections=(*objections(self.model, settings), *self.cost.pools.objections(settings, layers, shares)),
        )

    def _resident(self, memory: Memory) -> float:
        """Share of the mapped weights that fits in RAM beside what cannot be evicted."""
        host = memory.host
        hot = host.mapped_bytes - host.lazy_bytes
        if hot <= 0:
            return 1.0
        room = self._ram(memory) - host.unevictable_bytes
        return min(max(room / hot, 0.0), 1.0)


def pinned_limit(machine: Machine) -> int | None:
    """Bytes that can be page-locked for a GPU: under WDDM about half of RAM, which is what Windows lets GPUs share.

    46.4 GiB of an 87 GiB mapping were registered on a 96 GiB machine (zhaoyilun/moe-working-set-16gb).
    """
    return machine.ram.total_bytes // 2 if machine.wddm else None
