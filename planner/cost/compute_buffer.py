"""Compute buffers of all devices under some settings: who computes which block, and what that needs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from planner.cost.graph import GraphModel, Job, Part, Step
from planner.cost.layout import HOST, Span, active_devices
from planner.cost.shape import Shape
from planner.cost.weights import WeightTable
from planner.facts.machine import Backend, Gpu
from planner.facts.reading import Source
from planner.plans.memory import Term
from planner.plans.settings import Settings, SplitMode
from planner.units import count

OP_OFFLOAD_MIN_BATCH: Final = 32
"""Batches from here on multiply host weights on a GPU (``GGML_OP_OFFLOAD_MIN_BATCH``, #18535)."""

PIPELINE_COPIES: Final = 4
"""Copies of the graph inputs under pipeline parallelism (``GGML_SCHED_MAX_COPIES``)."""

_CUDA_CODE: Final = (Backend.CUDA, Backend.ROCM)


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


def offloads(settings: Settings, shape: Shape, gpus: Mapping[str, Gpu]) -> bool:
    """Whether device 0 multiplies host weights of large batches (ggml/src/ggml-backend.cpp:968-975, b11312).

    RPC devices have no ``offload_op``: the CPU multiplies there.
    """
    devices = active_devices(settings)
    return (
        bool(devices)
        and settings.op_offload
        and shape.n_tokens >= OP_OFFLOAD_MIN_BATCH
        and backend_of(gpus[devices[0]]) is not Backend.RPC
    )


def plan_jobs(
    graph: GraphModel, table: WeightTable, layout: tuple[Span, ...], settings: Settings, gpus: Mapping[str, Gpu],
    offload: bool,
) -> tuple[tuple[str, Job], ...]:  # fmt: skip
    """Jobs by device, the host's last. Device 0 also multiplies with the host's experts for large batches."""
    devices, steps = active_devices(settings), dict[str, list[Step]]()
    helper = devices[0] if offload else HOST
    for span in layout:
        for i in range(span.start, span.stop):
            if graph.model.layers[i].nextn:
                continue
            if span.device != HOST:
                steps.setdefault(HOST, []).append(Step(i, Part.COPY))
            staged = table.host_experts(i, settings.n_cpu_moe, on_host=span.device == HOST)
            if not staged or helper == span.device:
                steps.setdefault(span.device, []).append(Step(i, Part.WHOLE, staged if helper != HOST else ()))
                continue
            steps.setdefault(span.device, []).append(Step(i, Part.AWAY))
            steps.setdefault(helper, []).append(Step(i, Part.EXPERTS, staged if helper != HOST else ()))
    output = layout[-1].device
    copies = PIPELINE_COPIES if pipelined(settings, graph.model.n_layer) else 1
    return tuple(
        (
            device,
            Job(
                steps=graph.shortened(steps.get(device, ())),
                first=layout[0].device == device and layout[0].stop > 0,
                has_output=output == device,
                cuda=device != HOST and backend_of(gpus[device]) in _CUDA_CODE,
                host=device == HOST,
                handed=_follows_device(layout, device),
                copies=copies,
                tail=_tail(layout, device) if helper == HOST else None,
            ),
        )
        for device in (*devices, HOST)
    )


def _follows_device(layout: tuple[Span, ...], device: str) -> bool:
    """Whether a device's first block comes right after one of another device that is not the host."""
    first = next((i for i, span in enumerate(layout) if span.device == device), 0)
    return (
        device != HOST and first > 0 and layout[first - 1].device != HOST and layout[first].stop > layout[first].start
    )


def _tail(layout: tuple[Span, ...], device: str) -> int | None:
    """Block of the host right before a device's first block (or before the output layer)."""
    for before, span in pairwise(layout):
        if span.device == device and before.device == HOST and before.stop > 0:
            return before.stop - 1
    return None


def compute_terms(graph: GraphModel, shape: Shape, settings: Settings, job: Job) -> tuple[Term, ...]:
    """What is alive when the buffer of a device is largest, as terms that sum to it."""
    if not job.steps and not job.has_output and not job.host:
        return ()
    alive = graph.buffer(shape, settings, job)
    copies = f", inputs kept {job.copies} times" if job.copies > 1 else ""
    detail = f"alive at the peak of {len(job.steps)} distinct steps, u {count(shape.n_tokens)}{copies}"
    order = sorted(alive.items(), key=lambda item: -item[1])
    return tuple(Term(name, n_bytes, Source.DERIVED, detail) for name, n_bytes in order if n_bytes)
