"""llama.cpp's pool of experts on the GPU (``--moe-cache-mib``): its bytes, its hit rate, its time.

Blocks whose expert tensors are all in host memory and whose layer is on a device are served. Those of one device with
equal types and shapes share slots under one LRU; a device's budget is divided by their bytes (src/llama-moe-cache.cpp,
b11549). A token's misses are uploaded before the multiply, so with a pool the CPU computes no experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from planner.cost.layout import active_devices, split_shares
from planner.cost.rates import Rates
from planner.cost.tape import HOST
from planner.facts.machine import Machine
from planner.facts.model import Model, Role
from planner.facts.reading import Source
from planner.facts.routing import HitCurve, prior
from planner.plans.memory import Term
from planner.plans.settings import LoadMode, Settings, SplitMode
from planner.units import MIB, count

PIECE_S: Final = 4.0e-6
"""Time of one upload beside its bytes at the link's full rate; a missing expert is one upload per matrix. 3.7, 3.9 and
4.7 us (mixtures of 128, 64 and 256 experts with pieces of 0.53 MiB at 22 to 94 % hits) and 3.9 us (qwen3-30b-a3b,
pieces of 0.91 MiB at 21 and 98 %; all b11549 on links of 55 GB/s): the slope of the token's time, less its bytes, over
the number of pieces. So 20.6 of 23.5 GB/s come out for nine pieces (RTX 4080 SUPER), and small experts load slower."""

SERVED_S: Final = 3.2e-5
"""Fixed time per served block and token: the choice is read back, looked up, and the launch of what follows waits for
that, so a token is many small CUDA graphs instead of one. 36, 30 and 28 us over timed blocks of the same three
mixtures, 26 for qwen3-30b-a3b (over its 3.46 ms without a pool, and 1.5 ms for drawing from its whole vocabulary)."""

HELD: Final = frozenset(f"ffn_{part}_exps.weight" for part in ("gate_up", "gate", "up", "down"))


class Layer(NamedTuple):
    """What decides which blocks share slots."""

    kind: tuple[tuple[str, str, tuple[int, ...]], ...]
    """Its matrices of experts: name, type and shape."""
    expert_bytes: int
    """Of all its experts, in all their matrices."""


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks that share slots.

    Args:
        slots: experts it holds; 0 where it is switched off.
        slot_bytes: of one expert.
        pieces: matrices of one expert, each uploaded on its own.
    """

    device: str
    blocks: tuple[int, ...]
    slots: int
    slot_bytes: int
    n_expert: int
    n_used: int
    pieces: int

    @property
    def selected(self) -> int:
        """Experts that a token selects in its blocks."""
        return len(self.blocks) * self.n_used

    @property
    def share(self) -> float:
        """Of the experts of its blocks."""
        return self.slots / (len(self.blocks) * self.n_expert)

    @property
    def bytes(self) -> int:
        """One slot more than it uses is allocated."""
        return (self.slots + 1) * self.slot_bytes if self.slots else 0


class Seconds(Protocol):
    """What the pool's time is added to."""

    gpu: float
    pcie: float
    disk: float


@dataclass(frozen=True, slots=True)
class Service:
    """What a pool does to the speed of some settings.

    Args:
        decode_share, prefill_share: per block, the share of its expert bytes that host memory still has to do with:
            nothing in decode, what the pool does not hold in prefill.
        n_served: blocks that the pool serves.
        missed: experts per token that it has to upload, by group.
    """

    decode_share: tuple[float, ...]
    prefill_share: tuple[float, ...]
    n_served: int = 0
    missed: tuple[tuple[Group, float], ...] = ()

    def charge(self, seconds: Seconds, settings: Settings, rates: Rates, resident: float) -> None:
        """Add what a token waits for: the read-back of served blocks, misses on their way."""
        seconds.gpu += self.n_served * SERVED_S
        for group, experts in self.missed:
            seconds.pcie += experts * upload_s(group, settings, rates)
            seconds.disk += experts * group.slot_bytes * (1.0 - resident) / rates.disk.value


def upload_s(group: Group, settings: Settings, rates: Rates) -> float:
    """Seconds until one missing expert has arrived on its device."""
    link = rates.gpus[group.device]
    pinned = settings.load_mode is LoadMode.NONE and not settings.no_host
    return group.slot_bytes / (link.pinned if pinned else link.pageable).value + group.pieces * PIECE_S


class Pools:
    """The pools of one model on one machine."""

    def __init__(self, model: Model, machine: Machine) -> None:
        self._model, self._machine = model, machine
        self._layers = _layers(model)
        self._groups: dict[tuple[object, ...], tuple[Group, ...]] = {}
        self.curve = expected(model)

    def groups(
        self, settings: Settings, layer_map: tuple[str, ...], host_share: tuple[float, ...]
    ) -> tuple[Group, ...]:
        """The pool's groups, those that are switched off included; empty without a pool."""
        if settings.moe_cache_mib <= 0 or settings.split_mode is SplitMode.TENSOR:
            return ()
        key = (settings.moe_cache_mib, layer_map, host_share, settings.tensor_split, settings.devices)
        if key not in self._groups:
            self._groups[key] = self._made(settings, layer_map, host_share)
        return self._groups[key]

    def _made(self, settings: Settings, layer_map: tuple[str, ...], host_share: tuple[float, ...]) -> tuple[Group, ...]:
        served: dict[str, dict[Layer, list[int]]] = {}
        for block, layer in self._layers.items():
            if layer_map[block] != HOST and host_share[block] >= 1.0:
                served.setdefault(layer_map[block], {}).setdefault(layer, []).append(block)
        shares = dict(zip(active_devices(settings), split_shares(settings, self._machine), strict=True))
        whole = sum(shares[device] for device in served) or 1.0
        found = []
        for device, kinds in served.items():
            budget = settings.moe_cache_mib * MIB * shares[device] / whole
            wanted = sum(layer.expert_bytes * len(blocks) for layer, blocks in kinds.items())
            for layer, blocks in kinds.items():
                part = budget * layer.expert_bytes * len(blocks) / wanted
                found.append(self._group(device, layer, tuple(blocks), part))
        return tuple(found)

    def _group(self, device: str, layer: Layer, blocks: tuple[int, ...], budget: float) -> Group:
        n_expert, used = self._model.n_expert, self._used(blocks[0])
        slot_bytes = layer.expert_bytes // n_expert
        slots = min(int(budget // slot_bytes) - 1, len(blocks) * n_expert)
        return Group(device, blocks, slots if slots >= used else 0, slot_bytes, n_expert, used, len(layer.kind))

    def _used(self, block: int) -> int:
        return self._model.layers[block].n_expert_used or self._model.n_expert_used

    def terms(
        self, settings: Settings, layer_map: tuple[str, ...], host_share: tuple[float, ...]
    ) -> dict[str, tuple[Term, ...]]:
        """Bytes per device."""
        found: dict[str, list[Group]] = {}
        for group in self.groups(settings, layer_map, host_share):
            found.setdefault(group.device, []).append(group)
        return {device: (_term(groups),) for device, groups in found.items() if any(g.slots for g in groups)}

    def objections(
        self, settings: Settings, layer_map: tuple[str, ...], host_share: tuple[float, ...]
    ) -> tuple[str, ...]:
        """Why llama.cpp does not load with this pool (b11549)."""
        if settings.moe_cache_mib <= 0:
            return ()
        if not settings.devices or not self._model.is_moe:
            return (f"--moe-cache-mib needs {'a GPU' if self._model.is_moe else 'a mixture of experts'}",)
        if settings.split_mode is SplitMode.TENSOR:
            return ("--moe-cache-mib does not go with split mode tensor",)
        groups = self.groups(settings, layer_map, host_share)
        if groups and not any(group.slots for group in groups):
            return (f"--moe-cache-mib {settings.moe_cache_mib} is too small to hold the experts of one token",)
        return ()

    def service(self, settings: Settings, layer_map: tuple[str, ...], host_share: tuple[float, ...]) -> Service:
        """What the pool changes for speed."""
        groups = [group for group in self.groups(settings, layer_map, host_share) if group.slots]
        if not groups:
            return Service(host_share, host_share)
        decode, prefill = list(host_share), list(host_share)
        for group in groups:
            for block in group.blocks:
                decode[block], prefill[block] = 0.0, 1.0 - group.share
        missed = tuple((group, group.selected * (1.0 - self.hit_rate(group))) for group in groups)
        return Service(tuple(decode), tuple(prefill), sum(len(group.blocks) for group in groups), missed)

    def hit_rate(self, group: Group) -> float:
        """Expected share of hits in decode.

        A recording with fewer experts per token than the model uses is read at a pool that much smaller.
        """
        stats = self._model.routing
        scale = stats.routing.n_used / group.n_used if stats is not None else 1.0
        return self.curve.at(group.share * min(scale, 1.0)) if group.share < 1.0 else 1.0

    def cycle_bytes(self) -> int:
        """Expert bytes that one token uses in the whole model."""
        return sum(
            layer.expert_bytes // self._model.n_expert * self._used(block) for block, layer in self._layers.items()
        )


def expected(model: Model) -> HitCurve:
    """What is known of the hit rate: the recording, else the prior."""
    if model.routing is not None:
        return model.routing.adaptive
    return prior(model.n_expert_used / model.n_expert if model.n_expert else 1.0)


def _layers(model: Model) -> dict[int, Layer]:
    """Blocks with routed experts that run; their biases and scales are not held (``llama_moe_cache_layer_experts``)."""
    tensors: dict[int, list[tuple[str, str, tuple[int, ...]]]] = {}
    sizes: dict[int, int] = {}
    for tensor in model.tensors:
        stem = tensor.name.split(".", 2)[-1]
        held = tensor.role is Role.EXPERT and stem in HELD
        if held and tensor.layer is not None and not model.layers[tensor.layer].nextn:
            tensors.setdefault(tensor.layer, []).append((stem, tensor.type, tensor.shape))
            sizes[tensor.layer] = sizes.get(tensor.layer, 0) + tensor.n_bytes
    return {block: Layer(tuple(sorted(parts)), sizes[block]) for block, parts in sorted(tensors.items())}


def _term(groups: list[Group]) -> Term:
    n_bytes, slots = sum(group.bytes for group in groups), sum(group.slots for group in groups)
    held = sum(len(group.blocks) * group.n_expert for group in groups)
    detail = f"{count(slots)} of {count(held)} experts of the blocks it serves, and a spare slot per kind"
    return Term("expert cache", n_bytes, Source.DERIVED, detail)
