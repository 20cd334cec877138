"""Settings → candidate: memory, speed, what is short, and whether it pages. Memoised."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from planner import units
from planner.cost.kv_types import row_bytes
from planner.cost.layout import HOST, used_before
from planner.cost.model import CostModel
from planner.cost.speed import SpeedModel
from planner.facts.machine import Machine
from planner.facts.model import Layer, Model, Role
from planner.facts.workload import Workload
from planner.plans.memory import Memory
from planner.plans.plan import Candidate, Shortfall, Verdict
from planner.plans.settings import Settings

Reserve = tuple[tuple[str, int], ...]


def budgeted(machine: Machine, workload: Workload) -> Machine:
    """The machine with the user's ``--vram`` and ``--ram`` in place of what is free now.

    ``--vram SIZE`` is what this plan may see as free on the device (headroom still comes off);
    ``--ram SIZE`` likewise for RAM.
    """
    given = dict(workload.vram_bytes)
    gpus = []
    for gpu in machine.gpus:
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


@dataclass(frozen=True, slots=True)
class _Key:
    settings: Settings
    reserve: Reserve
    bound: bool


class Evaluator:
    """Prices settings for one problem. Memory does not depend on the workload and is shared between workloads."""

    def __init__(self, cost: CostModel, workload: Workload, memory: dict[Settings, Memory] | None = None) -> None:
        self.cost, self.machine, self.model = cost, cost.machine, cost.model
        self._speed = SpeedModel(self.model, self.machine, workload)
        self._memo: dict[_Key, Candidate] = {}
        self._memory = {} if memory is None else memory

    def under(self, workload: Workload) -> Evaluator:
        """The same model and machine under another workload."""
        return Evaluator(self.cost, workload, self._memory)

    def memory(self, settings: Settings) -> Memory:
        """Memory alone: what the search asks of most settings."""
        found = self._memory.get(settings)
        if found is None:
            found = self._memory[settings] = self.cost.memory(settings)
        return found

    def candidate(self, settings: Settings, reserve: Reserve) -> Candidate:
        """Memory, speed, verdict and shortfalls under ``reserve`` (bytes to keep free per device or ``host``)."""
        return self._priced(_Key(settings, reserve, bound=False))

    def bound(self, settings: Settings, reserve: Reserve) -> Candidate:
        """The candidate without its compute buffers: cheap, never larger, never short where the real one is not."""
        return self._priced(_Key(settings, reserve, bound=True))

    def shortfalls(self, memory: Memory, reserve: Reserve) -> tuple[Shortfall, ...]:
        """Devices whose headroom would be under the reserve, and the host if it cannot hold what is pinned."""
        keep = dict(reserve)
        short = [
            Shortfall(
                device.id,
                device.predicted_bytes,
                max(device.total_bytes - device.used_before_bytes - keep.get(device.id, 0), 0),
            )
            for device in memory.devices
            if device.headroom_bytes < keep.get(device.id, 0)
        ]
        available = memory.host.available_bytes
        if available is not None:
            needed, left = memory.host.unevictable_bytes, max(available - keep.get("host", 0), 0)
            if needed > left:
                short.append(Shortfall("host", needed, left))
        return tuple(short)

    def _priced(self, key: _Key) -> Candidate:
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._price(key)
        return found

    def _price(self, key: _Key) -> Candidate:
        settings, reserve = key.settings, key.reserve
        memory = self.cost.memory(settings, compute=False) if key.bound else self.memory(settings)
        layers = self.cost.layers_on(settings)
        shares = host_expert_shares(self.model, settings, layers)
        resident = self._resident(memory)
        return Candidate(
            settings=settings,
            memory=memory,
            speed=self._speed.speed(settings, layers, shares, resident),
            verdict=Verdict.FITS if resident >= 1.0 else Verdict.PAGES,
            shortfalls=self.shortfalls(memory, reserve),
        )

    def _resident(self, memory: Memory) -> float:
        """Share of the mapped weights that fits in RAM beside what cannot be evicted."""
        host = memory.host
        hot = host.mapped_bytes - host.lazy_bytes
        if host.available_bytes is None or hot <= 0:
            return 1.0
        room = host.available_bytes - host.unevictable_bytes
        return min(max(room / hot, 0.0), 1.0)


def host_expert_shares(model: Model, settings: Settings, layers: tuple[str, ...]) -> tuple[float, ...]:
    """Per block, the share of its routed expert bytes in host memory: overrides first, then ``n_cpu_moe``."""
    shares = [1.0 if i < settings.n_cpu_moe or layers[i] == HOST else 0.0 for i in range(model.n_layer)]
    rules = [(re.compile(pattern), target == HOST) for pattern, target in settings.override_tensor]
    if not rules:
        return tuple(shares)
    total, host = [0] * model.n_layer, [0.0] * model.n_layer
    for tensor in model.tensors:
        if tensor.role is Role.EXPERT and tensor.layer is not None:
            on_host = next((to_host for rule, to_host in rules if rule.search(tensor.name)), None)
            share = shares[tensor.layer] if on_host is None else float(on_host)
            total[tensor.layer] += tensor.n_bytes
            host[tensor.layer] += share * tensor.n_bytes
    return tuple(host[i] / total[i] if total[i] else 0.0 for i in range(model.n_layer))


def cache_bytes(layer: Layer, settings: Settings) -> int:
    """KV bytes of one block for the whole context (a sliding window counts its window per slot)."""
    cells = min(settings.n_ctx, layer.window * settings.n_parallel) if layer.window else settings.n_ctx
    row = row_bytes(settings.type_k, layer.n_embd_k) + row_bytes(settings.type_v, layer.n_embd_v)
    return 0 if layer.nextn else row * cells


def balanced_split(evaluator: Evaluator, settings: Settings) -> tuple[float, ...]:
    """Layers per device (output layer included) so that weights after overrides fill free VRAM evenly.

    llama.cpp splits by free memory before overrides; with ``--n-cpu-moe`` the stripped blocks then sit on the
    first device and the full ones overload the last (ggml-org/llama.cpp#15136).
    """
    cost, model = evaluator.cost, evaluator.model
    by_block = [cost.dense_bytes(i) + cache_bytes(model.layers[i], settings) for i in range(model.n_layer)]
    gpus = {gpu.id: gpu for gpu in evaluator.machine.gpus}
    first = max(model.n_layer + 1 - settings.n_gpu_layers, 0)
    weights = [
        by_block[i] + (0 if i < settings.n_cpu_moe else cost.expert_bytes(i)) for i in range(first, model.n_layer)
    ]
    weights.append(sum(t.n_bytes for t in model.tensors if t.role is Role.OUTPUT))
    room = [max(gpus[d].total_bytes - used_before(gpus[d]) - 2 * units.GIB, units.GIB) for d in settings.devices]
    low, high = 0.0, 2.0 * max(sum(weights) / sum(room), 1e-9) + 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if sum(_filled(weights, [middle * r for r in room])) == len(weights):
            high = middle
        else:
            low = middle
    return tuple(float(n) for n in _filled(weights, [high * r for r in room]))


def _filled(weights: list[int], limits: list[float]) -> list[int]:
    """How many consecutive weights each limit takes, in order."""
    counts, index = [], 0
    for limit in limits:
        taken, used = 0, 0.0
        while index < len(weights) and used + weights[index] <= limit:
            used += weights[index]
            index += 1
            taken += 1
        counts.append(taken)
    return counts
