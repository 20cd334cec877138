"""Seconds per token of decode and prefill for a placement.

Decode waits for bytes: of every block the dense part, ``n_expert_used`` of ``n_expert`` experts and the KV
cache at the depth, each over the rate of the memory that holds it, plus a fixed time per block. Prefill is
``ceil(prompt / n_ubatch)`` copies of the host's experts over the link, plus the multiplies of every token.
Where layers of this model were timed, their times stand in for those of weights and multiplies; the cache, the
head and the disk keep their rates.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from math import ceil
from typing import Final, NamedTuple

from planner.cost import drafting, rates
from planner.cost.kv_types import is_quantised, row_bytes
from planner.cost.layer_blocks import Block, blocks_of
from planner.cost.layer_times import LayerTimes
from planner.cost.pool import Pools
from planner.cost.rates import Rates
from planner.cost.tape import HOST
from planner.facts.machine import Backend, Machine
from planner.facts.model import Model
from planner.facts.reading import Source
from planner.facts.workload import Workload
from planner.plans.settings import LoadMode, Settings
from planner.plans.speed import Band, Resource, Speed

OFFLOAD_TOKENS: Final = 32
"""Smallest batch whose host multiplies run on the GPU (``GGML_OP_OFFLOAD_MIN_BATCH``, b11312)."""

SPREAD: Final = {
    Source.USER: 1.25,
    Source.MEASURED: 1.25,
    Source.REPORTED: 1.4,
    Source.DERIVED: 1.4,
    Source.ASSUMED: 2.0,
}
"""Factor between the mid-point and the ends of the band, by the weakest rate behind it."""


class Group(NamedTuple):
    """``n`` blocks of one kind on one device; ``host_share`` of their expert bytes is in host memory."""

    block: Block
    device: str
    host_share: float
    n: int


@dataclass(slots=True)
class Costs:
    """Seconds by resource."""

    ram: float = 0.0
    gpu: float = 0.0
    pcie: float = 0.0
    disk: float = 0.0
    compute: float = 0.0
    measured: float = 0.0
    """Part of the others that stands on timed layers."""

    @property
    def total(self) -> float:
        return self.ram + self.gpu + self.pcie + self.disk + self.compute

    def per(self, tokens: float) -> Costs:
        """The share of one of ``tokens``."""
        if tokens == 1.0:
            return self
        return Costs(*(getattr(self, field.name) / tokens for field in fields(self)))

    def largest(self) -> Resource:
        return max(Resource, key=lambda resource: getattr(self, resource.value))


class SpeedModel:
    """Predicts speed for one model on one machine under one workload."""

    def __init__(self, model: Model, machine: Machine, workload: Workload, pools: Pools) -> None:
        self.workload = workload
        self.rates: Rates = rates.rates_of(machine, model.expert_slice_bytes)
        self._backends = {gpu.id: gpu.backend or Backend.CUDA for gpu in machine.gpus}
        self._layers = LayerTimes(model, machine.layers)
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
        prefill = self._prefill(settings, self._groups(layer_map, pool.prefill_share), resident)
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
                costs.gpu += n * ((read - on_host) / self._vram(device) + fixed)
            host_bytes += n * on_host
            costs.gpu += n * depth * rates.INDEXER_CELL_S if block.indexed and device != HOST else 0.0
            if device == HOST or not settings.kv_offload:
                host_bytes += n * cells * _row_bytes(settings, block)
            else:
                costs.gpu += n * cells * _read_bytes(settings, block) / self._vram(device)
        heads = self._head_bytes + self._draft_bytes * (tokens - 1)
        if output == HOST:
            host_bytes += heads
        else:
            costs.gpu += heads / self._vram(output) + rates.LAYER_S * (tokens - 1)
        costs.pcie = crossings * rates.CROSSING_S
        costs.ram += (host_bytes - timed_bytes) / (self.rates.ram.value * rates.RAM_SHARE * self._threads(settings))
        costs.disk = host_bytes * (1.0 - resident) / self.rates.disk.value
        return costs.per(drafting.accepted_tokens(settings))

    def _threads(self, settings: Settings) -> float:
        """Share of the RAM rate that the threads reach."""
        given = settings.threads or self.rates.cores
        return float(min(given / self.rates.cores, 1.0) ** rates.THREAD_POWER)

    def _vram(self, device: str) -> float:
        """Bytes per second that decode reads from a device's memory."""
        return self.rates.gpus[device].memory.value * rates.VRAM_SHARE

    def _prefill(self, settings: Settings, groups: tuple[Group, ...], resident: float) -> Costs:
        """Seconds for the whole prompt."""
        prompt, first = self.workload.prompt_tokens, settings.devices[0] if settings.devices else None
        tokens = min(settings.n_ubatch, prompt)
        passes = ceil(prompt / settings.n_ubatch)
        offload = self._offloads(settings, tokens)
        helper = first if offload and first is not None else HOST
        copied, read, costs = 0.0, 0.0, Costs()
        for block, device, host_share, n in groups:
            share = 1.0 if device == HOST else host_share
            touched = block.expert_bytes * touched_share(block.used, tokens)
            weights = touched * share + (block.dense_bytes if device == HOST else 0)
            read += n * weights
            timed = self._layers.block(block, device, host_share, settings, offload=offload).prefill
            if timed is not None:
                seconds = n * (passes * timed[0] + prompt * timed[1])
                costs.compute += seconds
                costs.measured += seconds
                continue
            copied += n * weights if helper != HOST else 0.0
            if device != HOST:
                held = block.dense_bytes + touched * (1.0 - share)
                costs.gpu += passes * n * held / self._vram(device)
            costs.compute += prompt * n * self._token_s(block, device, share, helper, tokens)
        if copied and first is not None:
            link = self.rates.gpus[first]
            pinned = (
                settings.load_mode is LoadMode.NONE and self._backends[first] is Backend.CUDA and not settings.no_host
            )
            costs.pcie = passes * copied / (link.pinned if pinned else link.pageable).value
        if not settings.devices and not settings.repack:
            costs.compute /= rates.UNPACKED_SHARE
        costs.disk = passes * read * (1.0 - resident) / self.rates.disk.value
        return costs

    def _offloads(self, settings: Settings, tokens: int) -> bool:
        """Whether multiplies with host weights run on the first device: RPC devices do not take them."""
        takes = bool(settings.devices) and self._backends[settings.devices[0]] is not Backend.RPC
        return takes and settings.op_offload and tokens >= OFFLOAD_TOKENS

    def _token_s(self, block: Block, device: str, share: float, helper: str, tokens: int) -> float:
        """Seconds of one prompt token's multiplies in a block; ``helper`` does those of the host's weights."""
        experts = 2.0 * block.expert_params * block.used
        rows = tokens * block.used / touched_share(block.used, tokens) if block.used else 1.0
        dense_on = helper if device == HOST else device
        attended = self.workload.prompt_tokens / 2
        attended = min(attended, block.window) if block.window else attended
        fill = rows / (rows + rates.EXPERT_HALF_TOKENS) * rates.EXPERT_SHARE
        return (
            self._multiply_s(dense_on, 2.0 * block.dense_params, rates.DENSE_SHARE)
            + self._multiply_s(device, block.score_flop * attended, rates.ATTENTION_SHARE)
            + self._multiply_s(helper, experts * share, fill)
            + self._multiply_s(device, experts * (1.0 - share), fill)
        )

    def _multiply_s(self, device: str, flop: float, share: float) -> float:
        """Seconds of ``flop`` on a device; a GPU reaches ``share`` of its f16 rate."""
        if device == HOST:
            return flop / (self.rates.core_flops.value * self.rates.cores)
        gain = rates.METAL_GAIN if self._backends[device] is Backend.METAL else 1.0
        return flop / (self.rates.gpus[device].f16.value * share * gain)

    def _spread(self, costs: Costs, settings: Settings) -> float:
        """The width that the weakest rate deserves of those behind at least a tenth of the turn."""
        behind = rates.behind(self.rates, settings)
        heavy = [r for r in Resource if getattr(costs, r.value) >= 0.1 * costs.total]
        return max(SPREAD[reading.source] for resource in heavy for _, reading in behind[resource])


def _row_bytes(settings: Settings, block: Block) -> int:
    """Bytes of a cell."""
    types = zip((settings.type_k, settings.type_v), block.kv_elements, strict=True)
    return sum(row_bytes(kind, n) for kind, n in types)


def _read_bytes(settings: Settings, block: Block) -> float:
    """Bytes of a cell as a GPU reads it: a quantised one costs as much as so many f16 bytes."""
    types = zip((settings.type_k, settings.type_v), block.kv_elements, strict=True)
    return sum(2 * n * rates.QUANTISED_CACHE_COST if is_quantised(kind) else row_bytes(kind, n) for kind, n in types)


def touched_share(used: float, tokens: float) -> float:
    """Share of a block's experts that ``tokens`` of real text use, each of them the share ``used``; at least that.

    ``rates.SKEW`` has the law and where it comes from; a batch of synthetic tokens touches more or less.
    """
    return max(1.0 - (1.0 + tokens * used / rates.SKEW) ** -rates.SKEW, used) if used < 1.0 else 1.0


def _eased(spread: float, measured: float) -> float:
    """The factor where a share of the time is measured: its own spread for that share, the rates' for the rest."""
    return spread + (min(SPREAD[Source.MEASURED], spread) - spread) * measured


def _band(mid: float, spread: float) -> Band:
    return Band(mid / spread, mid, mid * spread)
