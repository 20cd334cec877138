"""Seconds per token of decode and prefill for a placement.

Decode waits for bytes: of every block the dense part, ``n_expert_used`` of ``n_expert`` experts and the KV
cache at the depth, each over the rate of the memory that holds it, plus a fixed time per block. Prefill is
``ceil(prompt / n_ubatch)`` copies of the host's experts over the link, plus the multiplies of every token.
Where layers of this model were timed, their times stand in for those of weights and multiplies; the cache, the
head and the disk keep their rates.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from planner.cost import drafting, rates
from planner.cost.behind import behind
from planner.cost.engines import engine_traits
from planner.cost.kv_types import is_quantised, row_bytes
from planner.cost.layer_blocks import Block, blocks_of
from planner.cost.layer_times import LayerTimes
from planner.cost.pool import Pools
from planner.cost.prefill import Prefill
from planner.cost.rates import Rates
from planner.cost.seconds import Costs, Group, touched_share
from planner.cost.tape import HOST
from planner.facts.machine import Backend, Machine
from planner.facts.model import Model
from planner.facts.reading import Source
from planner.facts.workload import Workload
from planner.plans.settings import Settings
from planner.plans.speed import Band, Resource, Speed

SPREAD: Final = {
    Source.USER: 1.25,
    Source.MEASURED: 1.25,
    Source.REPORTED: 1.4,
    Source.DERIVED: 1.4,
    Source.ASSUMED: 2.0,
}
"""Factor between the mid-point and the ends of the band, by the weakest rate behind it."""


class SpeedModel:
    """Predicts speed for one model on one machine under one workload."""

    def __init__(self, model: Model, machine: Machine, workload: Workload, pools: Pools) -> None:
        self.workload = workload
        self.rates: Rates = rates.rates_of(machine, model.expert_slice_bytes)
        backends = {gpu.id: gpu.backend or Backend.CUDA for gpu in machine.gpus}
        self._layers = LayerTimes(model, machine.layers)
        engine = engine_traits(machine.engine)
        self._prefill = Prefill(self.rates, backends, self._layers, engine, workload.prompt_tokens)
        self._pools = pools
        blocks = blocks_of(model)
        self._kinds = tuple(dict.fromkeys(blocks))
        self._kind_of = tuple(self._kinds.index(block) for block in blocks)
        head = [t for t in model.tensors if t.name in ("output.weight", "token_embd.weight")]
        output = next((t for t in head if t.name == "output.weight"), head[0] if head else None)
        self._head_bytes = output.n_bytes if output else 0
        self._draft_bytes = self._head_bytes + drafting.block_bytes(model)

    def speed(
        self, settings: Settings, layer_map: tuple[str, ...], host_share: tuple[float, ...], resident: float
    ) -> Speed:
        """Predict.

        Args:
            layer_map: device per block and, last, of the output layer.
            host_share: per block, the share of its expert bytes that is in host memory.
            resident: share of the host's hot weights that RAM can hold (1.0: no paging).
        """
        pool = self._pools.service(settings, layer_map, host_share)
        decode = self._decode(settings, self._groups(layer_map, pool.decode_share), layer_map[-1], resident)
        pool.charge(decode, settings, self.rates, resident)
        prefill = self._prefill.costs(settings, self._groups(layer_map, pool.prefill_share), resident)
        work = self.workload
        turn_s = prefill.total + work.answer_tokens * decode.total
        work_measured = work.answer_tokens * decode.measured
        both = Costs(
            *(
                getattr(prefill, r.value) + work.answer_tokens * getattr(decode, r.value)
                for r in (Resource.RAM, Resource.GPU, Resource.PCIE, Resource.DISK, Resource.COMPUTE)
            )
        )
        spread = self._spread(both, settings)
        return Speed(
            decode_tps=_band(1.0 / decode.total, _eased(spread, decode.measured / decode.total)),
            prefill_tps=_band(work.prompt_tokens / prefill.total, _eased(spread, prefill.measured / prefill.total)),
            turn_s=_band(turn_s, _eased(spread, (prefill.measured + work_measured) / turn_s)),
            bound_by=both.largest(),
        )

    def _groups(self, layer_map: tuple[str, ...], host_share: tuple[float, ...]) -> tuple[Group, ...]:
        """Blocks that cost the same: equal kind, device and share on the host."""
        found = Counter(zip(self._kind_of, layer_map, host_share, strict=False))
        return tuple(Group(self._kinds[kind], device, share, n) for (kind, device, share), n in found.items())

    def _decode(self, settings: Settings, groups: tuple[Group, ...], output: str, resident: float) -> Costs:
        """Seconds per answered token at the depth of the middle of the answer."""
        depth = self.workload.prompt_tokens + self.workload.answer_tokens // 2
        tokens = drafting.pass_tokens(settings)
        timed_bytes, host_bytes, crossings, costs = 0.0, 0.0, 0, Costs()
        for block, device, share, n in groups:
            cells = min(depth, block.window) if block.window else depth
            experts = block.expert_bytes * (block.used if tokens == 1 else touched_share(block.used, tokens))
            read = block.dense_bytes + experts
            on_host = read if device == HOST else experts * share
            seconds = self._layers.block(block, device, share, settings, offload=False).decode_s
            if seconds is not None:
                seconds *= read / block.active_bytes
                timed_bytes += n * on_host
                costs.measured += n * seconds
                part = on_host / read
                costs.ram += n * seconds * part
                costs.gpu += n * seconds * (1.0 - part)
            elif device != HOST:
                crossings += n * (on_host > 0)
                fixed = rates.LAYER_S + (rates.RECURRENT_S if block.recurrent else 0.0)
                costs.gpu += n * ((read - on_host) / self.rates.vram(device) + fixed)
            host_bytes += n * on_host
            costs.gpu += n * depth * rates.INDEXER_CELL_S if block.indexed and device != HOST else 0.0
            if device == HOST or not settings.kv_offload:
                host_bytes += n * cells * _row_bytes(settings, block)
                costs.compute += n * self._scored_s(settings, block, cells)
            else:
                costs.gpu += n * cells * _read_bytes(settings, block) / self.rates.vram(device)
        heads = self._head_bytes + self._draft_bytes * (tokens - 1)
        if output == HOST:
            host_bytes += heads
        else:
            costs.gpu += heads / self.rates.vram(output) + rates.LAYER_S * (tokens - 1)
        costs.pcie = crossings * rates.CROSSING_S
        costs.ram += (host_bytes - timed_bytes) / (self.rates.ram.value * rates.RAM_SHARE * self._threads(settings))
        costs.disk = host_bytes * (1.0 - resident) / self.rates.disk.value
        return costs.per(drafting.accepted_tokens(settings))

    def _scored_s(self, settings: Settings, block: Block, cells: int) -> float:
        """Seconds that attention of one token on the CPU takes beyond those of reading its cells."""
        cores = min(settings.threads or self.rates.cores, self.rates.cores)
        core = min(self.rates.core_flops.value, rates.CORE_SCORE_FLOPS)
        computed = block.score_flop * cells / (core * cores)
        reading = self.rates.ram.value * rates.RAM_SHARE * self._threads(settings)
        return max(computed - cells * _row_bytes(settings, block) / reading, 0.0)

    def _threads(self, settings: Settings) -> float:
        """Share of the RAM rate that the threads reach."""
        given = settings.threads or self.rates.cores
        return float(min(given / self.rates.cores, 1.0) ** rates.THREAD_POWER)

    def _spread(self, costs: Costs, settings: Settings) -> float:
        """The width that the weakest rate deserves of those behind at least a tenth of the turn."""
        resting = behind(self.rates, settings)
        heavy = [r for r in Resource if getattr(costs, r.value) >= 0.1 * costs.total]
        return max(SPREAD[reading.source] for resource in heavy for _, reading in resting[resource])


def _row_bytes(settings: Settings, block: Block) -> int:
    """Bytes of a cell."""
    types = zip((settings.type_k, settings.type_v), block.kv_elements, strict=True)
    return sum(row_bytes(kind, n) for kind, n in types)


def _read_bytes(settings: Settings, block: Block) -> float:
    """Bytes of a cell as a GPU reads it: a quantised one costs as much as so many f16 bytes."""
    types = zip((settings.type_k, settings.type_v), block.kv_elements, strict=True)
    return sum(2 * n * rates.QUANTISED_CACHE_COST if is_quantised(kind) else row_bytes(kind, n) for kind, n in types)


def _eased(spread: float, measured: float) -> float:
    """The factor where a share of the time is measured: its own spread for that share, the rates' for the rest."""
    return spread + (min(SPREAD[Source.MEASURED], spread) - spread) * measured


def _band(mid: float, spread: float) -> Band:
    return Band(mid / spread, mid, mid * spread)
