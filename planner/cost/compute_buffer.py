"""Compute buffers of all devices under some settings: who computes which block, and what that needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from planner.cost.blocks import Place
from planner.cost.graph import GraphModel, Plan
from planner.cost.layout import Span, active_devices
from planner.cost.shape import Shape
from planner.cost.tape import HOST
from planner.cost.weights import WeightTable
from planner.facts.machine import Backend, Gpu, Machine
from planner.facts.model import AttentionKind, Model
from planner.facts.reading import Source
from planner.plans.memory import Term
from planner.plans.settings import Settings, SplitMode, Tool
from planner.units import MIB, count

PIPELINE_COPIES: Final = 4
"""Copies of the graph inputs under pipeline parallelism (``GGML_SCHED_MAX_COPIES``)."""

_CUDA_CODE: Final = (Backend.CUDA, Backend.ROCM)


MIRRORED_BUILDS: Final = (11312, 11549)
"""First and last build whose graphs are drawn here."""

_OLD_SCORES: Final = (850 * MIB, 257_171, 13)
"""Bytes, bytes per token of the ubatch, and bytes per token and cell that an indexer's graph took in b10666, for
contexts of 16,384 to 262,144 and ubatches of 32 to 8,192 (zhaoyilun/moe-working-set-16gb)."""


def old_scores(model: Model, shape: Shape, machine: Machine) -> int:
    """What an indexer's scores need at least in a build older than those that are mirrored; 0 elsewhere.

    A build that nobody knows counts as old under WDDM: there what goes over is paged, slow and said by nothing, while
    elsewhere the load fails at once.
    """
    build = machine.engine.build if machine.engine else None
    old = machine.wddm if build is None else build < MIRRORED_BUILDS[0]
    if not old or not any(layer.indexer_k for layer in model.layers):
        return 0
    base, per_token, per_cell = _OLD_SCORES
    return base + shape.n_tokens * (per_token + per_cell * shape.n_ctx)


def backend_of(gpu: Gpu) -> Backend:
    return gpu.backend or Backend.CUDA


def pipelined(settings: Settings, n_layer: int) -> bool:
    """Whether the scheduler keeps four copies of the inputs (src/llama-context.cpp:430-460, b11434).

    Needs several devices, every layer on them, split mode layer, the cache on the devices, no override of
    any kind and, from b11549 on, no expert cache.
    """
    devices = active_devices(settings)
    return (
        len(devices) > 1
        and settings.n_gpu_layers > n_layer
        and settings.split_mode is SplitMode.LAYER
        and settings.kv_offload
        and not settings.override_tensor
        and settings.n_cpu_moe == 0
        and settings.moe_cache_mib == 0
    )


def offload_device(settings: Settings, gpus: Mapping[str, Gpu]) -> str | None:
    """The device that multiplies host weights of large batches: the first that offers to
    (``ggml_backend_sched_backend_id_from_cur``, ggml/src/ggml-backend.cpp, b11434).

    RPC devices have no ``offload_op``.
    """
    if not settings.op_offload:
        return None
    return next((d for d in active_devices(settings) if backend_of(gpus[d]) is not Backend.RPC), None)


def graph_plan(
    graph: GraphModel, table: WeightTable, layout: tuple[Span, ...], settings: Settings, gpus: Mapping[str, Gpu],
    tool: Tool, *, draft: bool = False, whole: bool = True,
) -> Plan:  # fmt: skip
    """Where every block, cache and weight is, shortened to what matters.

    Args:
        draft: the context of multi-token prediction: its blocks only.
        whole: as for ``GraphModel.shortened``.
    """
    devices, offload = active_devices(settings), offload_device(settings, gpus)
    places: list[tuple[int, Place]] = []
    for span in layout:
        for i in range(span.start, span.stop):
            if graph.model.layers[i].nextn is not draft:
                continue
            cache = span.device if settings.kv_offload else HOST
            places.append((i, Place(span.device, cache, table.elsewhere(i, span.device, settings.n_cpu_moe))))
    output, n_layer = layout[-1].device, graph.model.n_layer
    steps = graph.shortened(places, staged=offload is not None, whole=whole)
    return Plan(
        steps=steps,
        output=output,
        head=table.head_device(output),
        devices=(*devices, HOST),
        cuda=tuple(device for device in devices if backend_of(gpus[device]) in _CUDA_CODE),
        offload=offload,
        staged=any(place.device != HOST and HOST in dict(place.elsewhere).values() for _, place in places)
        or any(place.device == HOST for _, place in places),
        forced=tool is not Tool.FIT_PARAMS,
        all_on_devices=settings.n_gpu_layers > n_layer,
        zeros=_left_out(graph, places, steps),
        copies=PIPELINE_COPIES if pipelined(settings, n_layer) else 1,
        draft=draft,
    )


def _left_out(
    graph: GraphModel, places: Sequence[tuple[int, Place]], steps: Sequence[tuple[int, Place]]
) -> tuple[tuple[str, int], ...]:
    """Blocks with leaves of zeros, by device, that ``shortened`` left out."""
    counts = Counter(place.device for i, place in places if graph.leafy[i])
    counts.subtract(place.device for i, place in steps if graph.leafy[i])
    return tuple(counts.items())


def compute_terms(graph: GraphModel, shape: Shape, settings: Settings, plan: Plan) -> dict[str, tuple[Term, ...]]:
    """What is alive when the buffer of a device is largest, as terms that sum to it."""
    copies = f", inputs kept {plan.copies} times" if plan.copies > 1 else ""
    detail = f"alive at the peak of {len(plan.steps)} distinct blocks, u {count(shape.n_tokens)}{copies}"
    source, doubt = _doubt(graph, plan)
    found = {}
    for device, alive in graph.buffers(shape, settings, plan).items():
        order = sorted(alive.items(), key=lambda item: -item[1])
        prefix = "draft " if plan.draft else ""
        found[device] = tuple(
            Term(prefix + name, n_bytes, source, f"{detail}{doubt}") for name, n_bytes in order if n_bytes
        )
    return found


def _doubt(graph: GraphModel, plan: Plan) -> tuple[Source, str]:
    """Where recorded answers were missed by more than the tolerance (benchmarks/memory/README.md)."""
    if plan.draft:
        return Source.ASSUMED, "; no recorded answer to compare with"
    if graph.traits.rough and plan.offload and plan.staged:
        return Source.ASSUMED, "; may miss one host weight copied to the device"
    if graph.traits.pool:
        latent = any(block.layer.kind is AttentionKind.MLA for block in graph.blocks)
        missed = (
            "pools of latent cells were up to 59 % under with several slots"
            if latent
            else "pools of cells were up to 4 % under"
        )
        return Source.ASSUMED, f"; {missed}"
    return Source.DERIVED, ""
