"""The memory of any settings: one object per model, machine and tool, then sums over a few spans."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from operator import add

from planner.cost import compute_buffer, overhead
from planner.cost.graph import GraphModel, Plan
from planner.cost.host import host_model, pins
from planner.cost.host_share import host_expert_shares
from planner.cost.kv_cache import KvTable
from planner.cost.layout import (
    Span,
    active_devices,
    cuts_tensors,
    known_gpus,
    layer_devices,
    spans,
    split_shares,
    used_before,
)
from planner.cost.pool import Pools
from planner.cost.shape import Shape, draft_shape, shape_of
from planner.cost.tape import HOST
from planner.cost.weights import Placed, WeightTable
from planner.errors import OptionError
from planner.facts.machine import Machine
from planner.facts.model import Model, Role
from planner.facts.reading import Source
from planner.plans.memory import DeviceMemory, HostMemory, Memory, Term, joined, total
from planner.plans.settings import Settings, SplitMode, Tool


class CostModel:
    """Predicts what llama.cpp allocates, thousands of times per second.

    Args:
        tool: the program that runs; they size slots and outputs differently.
        whole: draw every block of a model whose memory need not repeat from block to block; without, its compute
            buffers may be a few percent off and cost a tenth of the time.
    """

    def __init__(self, model: Model, machine: Machine, tool: Tool = Tool.SERVER, *, whole: bool = True) -> None:
        self.model, self.machine, self.tool, self._whole = model, machine, tool, whole
        self._gpus = known_gpus(machine)
        self.unified = frozenset(gpu.id for gpu in machine.gpus if gpu.unified)
        self.pools = Pools(model, machine)
        self._graph = GraphModel(model)
        self._activation_bytes = overhead.activation_bytes(model)
        self._weights: dict[tuple[object, ...], WeightTable] = {}
        self._kv: dict[tuple[object, ...], KvTable] = {}
        self._spans: dict[tuple[object, ...], tuple[Span, ...]] = {}
        self._plans: dict[tuple[object, ...], Plan] = {}
        self._dense: tuple[list[int], list[int]] | None = None
        self._caches: dict[tuple[object, ...], list[int]] = {}
        self._placed: dict[tuple[object, ...], Placed] = {}
        self._host_shares: dict[tuple[object, ...], tuple[float, ...]] = {}
        self._compute: dict[tuple[object, ...], dict[str, tuple[Term, ...]]] = {}

    def memory(self, settings: Settings, *, compute: bool = True) -> Memory:
        """Bytes per named device and on the host; without ``compute`` a cheap lower bound.

        Raises:
            OptionError: a device that the machine lacks, an override to no device or a KV type that llama.cpp
                cannot place.
        """
        self._check(settings)
        shape = shape_of(self.model, settings, self.tool)
        placed = self._place(settings)
        context = self._context(settings, shape)
        work = self._compute_terms(settings, shape) if compute else {}
        cache = self._expert_cache(settings)
        cut = cuts_tensors(settings)
        host = self._host(settings, shape, placed, context.get(HOST, ()), work.get(HOST, ()))
        devices = tuple(
            DeviceMemory(
                id=device,
                total_bytes=self._gpus[device].total_bytes,
                used_before_bytes=used_before(self._gpus[device]),
                model=_told(placed.terms(device), cut=cut),
                context=_told(context.get(device, ()), cut=cut),
                compute=_told(work.get(device, ()), cut=cut),
                cache=cache.get(device, ()),
                overhead=self._overhead(device, settings, host) if device in active_devices(settings) else (),
            )
            for device in settings.devices
        )
        return joined(devices, host, self.unified)

    def overhead(self, settings: Settings) -> dict[str, int]:
        """Bytes that every active device needs beside weights, caches and compute buffers: part of ``memory``."""
        host = self._host(settings, shape_of(self.model, settings, self.tool), self._place(settings), (), ())
        return {device: total(self._overhead(device, settings, host)) for device in active_devices(settings)}

    @property
    def is_rough(self) -> bool:
        """Whether blocks are left out that may matter."""
        return not self._whole and self._graph.traits.irregular

    def layers_on(self, settings: Settings) -> tuple[str, ...]:
        """Device of every block (``CPU`` or an id) and, last, of the output layer."""
        return tuple(
            device
            for span in self.spans(settings)
            for device in (span.device,) * (span.stop - span.start + span.has_output)
        )

    def host_shares(self, settings: Settings) -> tuple[float, ...]:
        """``host_expert_shares``, kept."""
        key = (settings.override_tensor, settings.n_cpu_moe, self.spans(settings))
        if key not in self._host_shares:
            self._host_shares[key] = host_expert_shares(self.model, settings, self.layers_on(settings))
        return self._host_shares[key]

    def expert_bytes(self, layer: int) -> int:
        """Bytes that ``n_cpu_moe`` moves for one block."""
        return self._table(None).expert_bytes(layer)

    def block_bytes(self, settings: Settings) -> list[int]:
        """Weights and cache of every block as it is on a device: experts that ``n_cpu_moe`` moves left out."""
        if self._dense is None:
            table, blocks = self._table(None), range(self.model.n_layer)
            self._dense = [table.dense_bytes(i) for i in blocks], [table.expert_bytes(i) for i in blocks]
        dense, experts = self._dense
        cut = settings.n_cpu_moe
        weights = [*dense[:cut], *map(add, dense[cut:], experts[cut:])]
        return [*map(add, weights, self._block_cache(settings))] if settings.kv_offload else weights

    @cached_property
    def output_bytes(self) -> int:
        """The output matrix, which with tied embeddings is a copy of them."""
        model = self.model
        names = {t.name for t in model.tensors if t.role is Role.OUTPUT} if model.has_output else {"token_embd.weight"}
        return sum(t.n_bytes for t in model.tensors if t.name in names)

    def _block_cache(self, settings: Settings) -> list[int]:
        shape = shape_of(self.model, settings, self.tool)
        key = (shape, settings.type_k, settings.type_v, settings.swa_full)
        if key not in self._caches:
            table = self._kv_table(settings.type_k, settings.type_v, shape.flash_attn, False)
            self._caches[key] = table.block_bytes(shape, settings)
        return self._caches[key]

    def host_expert_layers(self, settings: Settings) -> tuple[int, ...]:
        """Blocks with routed experts in host memory, by layer map, ``n_cpu_moe`` and overrides."""
        table, devices = self._table(settings), self.layers_on(settings)
        forced = {block for block, device in table.overridden if device == HOST}
        return tuple(
            i
            for i in range(self.model.n_layer)
            if i in forced or (table.expert_bytes(i) and (i < settings.n_cpu_moe or devices[i] == HOST))
        )

    def spans(self, settings: Settings) -> tuple[Span, ...]:
        """The layer map as contiguous spans, in block order."""
        key = (settings.n_gpu_layers, settings.tensor_split, settings.devices, settings.split_mode)
        if key not in self._spans:
            devices = active_devices(settings)
            shares = split_shares(settings, self.machine)
            self._spans[key] = spans(layer_devices(self.model.n_layer, settings.n_gpu_layers, devices, shares))
        return self._spans[key]

    def _check(self, settings: Settings) -> None:
        known = " ".join(self._gpus) or "no device"
        for device in settings.devices:
            if device not in self._gpus:
                raise OptionError(f"device {device}", expected=known, found="not on this machine")
        for pattern, device in settings.override_tensor:
            if device != HOST and device not in settings.devices:
                expected = " ".join((HOST, *settings.devices))
                raise OptionError(f"override {pattern}={device}", expected=expected, found=repr(device))

    def _place(self, settings: Settings) -> Placed:
        key = (settings.override_tensor, overhead.drafts(settings), self.spans(settings), settings.n_cpu_moe)
        if key not in self._placed:
            self._placed[key] = self._table(settings).place(self.spans(settings), settings.n_cpu_moe)
        return self._placed[key]

    def _table(self, settings: Settings | None) -> WeightTable:
        overrides = settings.override_tensor if settings else ()
        nextn = settings is not None and overhead.drafts(settings)
        key = (overrides, nextn)
        if key not in self._weights:
            self._weights[key] = WeightTable(self.model, overrides, nextn=nextn)
        return self._weights[key]

    def _kv_table(self, type_k: str, type_v: str, flash_attn: bool, nextn: bool) -> KvTable:
        key = (type_k, type_v, flash_attn, nextn)
        if key not in self._kv:
            self._kv[key] = KvTable(self.model, type_k, type_v, flash_attn=flash_attn, nextn=nextn)
        return self._kv[key]

    def _context(self, settings: Settings, shape: Shape) -> dict[str, tuple[Term, ...]]:
        """Caches of the main context and, under MTP, the draft context's own (f16 unless its flags say so)."""
        layout = self.spans(settings)
        table = self._kv_table(settings.type_k, settings.type_v, shape.flash_attn, False)
        found = table.terms(layout, shape, settings)
        if overhead.drafts(settings):
            draft = self._kv_table("f16", "f16", shape.flash_attn, True).terms(layout, shape, settings)
            for device, terms in draft.items():
                named = tuple(Term(f"draft {t.name}", t.n_bytes, t.source, t.detail) for t in terms)
                found[device] = found.get(device, ()) + named
        return found

    def _compute_terms(self, settings: Settings, shape: Shape) -> dict[str, tuple[Term, ...]]:
        """Compute buffers of the main context and, under MTP, of the draft context."""
        if settings.split_mode is SplitMode.TENSOR and len(settings.devices) > 1:
            return self._cut_compute_terms(settings, shape)
        found = self._with_old_scores(self._replayed(settings, shape, draft=False), settings, shape)
        if overhead.drafts(settings) and any(layer.nextn for layer in self.model.layers):
            found = dict(found)
            drafting = replace(settings, type_k="f16", type_v="f16")
            for device, terms in self._replayed(drafting, draft_shape(shape), draft=True).items():
                found[device] = found.get(device, ()) + terms
        return found

    def _with_old_scores(
        self, found: dict[str, tuple[Term, ...]], settings: Settings, shape: Shape
    ) -> dict[str, tuple[Term, ...]]:
        """Compute buffers of the devices raised to what an older build needs for an indexer."""
        least = compute_buffer.old_scores(self.model, shape, self.machine)
        if not least:
            return found
        detail = f"scores of an indexer in builds before b{compute_buffer.MIRRORED_BUILDS[0]}, measured with b10666"
        if self.machine.engine is None or self.machine.engine.build is None:
            detail += "; the build is not known and may be one"
        return found | {
            device: (*terms, Term("indexer scores (old build)", least - total(terms), Source.ASSUMED, detail))
            for device, terms in found.items()
            if device in active_devices(settings) and total(terms) < least
        }

    def _cut_compute_terms(self, settings: Settings, shape: Shape) -> dict[str, tuple[Term, ...]]:
        """Every device runs the whole graph on its slices of the tensors: none needs more than one device that holds
        them whole (llama-fit-params b11549 says that for the devices as one, ``Meta()``)."""
        first, *_ = settings.devices
        moved = tuple((rule, HOST if device == HOST else first) for rule, device in settings.override_tensor)
        whole = replace(settings, split_mode=SplitMode.LAYER, devices=(first,), tensor_split=(), override_tensor=moved)
        found = self._compute_terms(whole, shape)
        return {device: found.get(first, ()) for device in settings.devices} | {HOST: found.get(HOST, ())}

    def _replayed(self, settings: Settings, shape: Shape, *, draft: bool) -> dict[str, tuple[Term, ...]]:
        """Replays are kept: only what the graph depends on makes a new one."""
        table, layout = self._table(settings), self.spans(settings)
        piped = compute_buffer.pipelined(settings, self.model.n_layer)
        placing = (settings.override_tensor, settings.n_cpu_moe, settings.kv_offload, settings.op_offload)
        place = (layout, *placing, piped, draft)
        if place not in self._plans:
            self._plans[place] = compute_buffer.graph_plan(
                self._graph, table, layout, settings, self._gpus, self.tool, draft=draft, whole=self._whole
            )
        plan = self._plans[place]
        key = (shape, plan, settings.type_k, settings.type_v, settings.swa_full, settings.kv_offload)
        if key not in self._compute:
            self._compute[key] = compute_buffer.compute_terms(self._graph, shape, settings, plan)
        return self._compute[key]

    def _expert_cache(self, settings: Settings) -> dict[str, tuple[Term, ...]]:
        """``--moe-cache-mib`` over the devices whose own blocks keep all experts on the host."""
        if settings.moe_cache_mib <= 0:
            return {}
        return self.pools.terms(settings, self.layers_on(settings), self.host_shares(settings))

    def _host(
        self, settings: Settings, shape: Shape, placed: Placed, context: tuple[Term, ...], work: tuple[Term, ...]
    ) -> HostMemory:
        weights, pinned, mapped, repacked = host_model(placed, settings, self._gpus)
        output = overhead.output_buffer(self.model, shape)
        if pins(settings, self._gpus):
            pinned += total(work) + output.n_bytes
        ram = self.machine.ram
        return HostMemory(
            model=weights,
            context=context,
            compute=work,
            overhead=(output, *overhead.prompt_cache(settings, self.tool), *self._checkpoints(settings, shape)),
            pinned_bytes=pinned,
            mapped_bytes=mapped,
            available_bytes=ram.available_bytes,
            lazy_bytes=placed.lazy,
            repacked_bytes=repacked,
        )

    def _overhead(self, device: str, settings: Settings, host: HostMemory) -> tuple[Term, ...]:
        gpu = self._gpus[device]
        return overhead.driver_context(gpu, settings.n_ubatch, host.pinned_bytes, self._activation_bytes)

    def _checkpoints(self, settings: Settings, shape: Shape) -> tuple[Term, ...]:
        table = self._kv_table(settings.type_k, settings.type_v, shape.flash_attn, False)
        return overhead.checkpoints(settings, self.tool, table.rewindless_bytes(shape, settings))


def _told(terms: tuple[Term, ...], *, cut: bool) -> tuple[Term, ...]:
    """Terms as they are, or in doubt where tensors are cut: that has roundings and buffers of its own."""
    if not cut:
        return terms
    detail = "tensors are cut over the devices; weights and caches count as whole layers by the same shares"
    return tuple(replace(term, source=Source.ASSUMED, detail=f"{term.detail}; {detail}") for term in terms)
