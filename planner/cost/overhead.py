"""What no llama.cpp breakdown shows: the driver's own memory, output rows, prompt cache, checkpoints."""

from __future__ import annotations

from typing import Final

from planner.cost.shape import MTP, Shape
from planner.facts.machine import Backend, DriverModel, Gpu
from planner.facts.model import Model
from planner.facts.reading import Source
from planner.plans.memory import Term
from planner.plans.settings import Settings, Tool
from planner.units import GIB, MIB, count

DESKTOP_CONTEXT_BYTES: Final = 300 * MIB
"""CUDA context, modules and graphs of a desktop card: 289-293 MiB measured over eight decode runs of a
16 GB Ada card under WDDM (NVML peak minus desktop minus all buffers)."""

DATACENTRE_CONTEXT_BYTES: Final = 800 * MIB
"""The same of a large card with its pools: 755-781 MiB measured on an H200 (NVML peak minus buffers, b11434)."""

DATACENTRE_FROM_BYTES: Final = 40 * GIB
"""Cards at or above this size count as datacentre parts: more SMs, larger modules and pools."""


def driver_context(gpu: Gpu) -> tuple[Term, ...]:
    """Driver memory of one llama.cpp process on a device, assumed by backend and size of the card.

    Nothing for RPC (the remote process holds it outside our buffers' device view) and Metal (shared heap).
    """
    if gpu.backend in (Backend.RPC, Backend.METAL):
        return ()
    large = gpu.total_bytes >= DATACENTRE_FROM_BYTES and gpu.driver_model is not DriverModel.WDDM
    n_bytes = DATACENTRE_CONTEXT_BYTES if large else DESKTOP_CONTEXT_BYTES
    measured = "755-781 MiB measured on an H200" if large else "289-293 MiB measured on a 16 GB Ada card under WDDM"
    name = f"{gpu.backend or Backend.CUDA} context"
    return (Term(name, n_bytes, Source.ASSUMED, f"driver context, modules and pools: {measured}"),)


def output_buffer(model: Model, shape: Shape) -> Term:
    """One row of logits per sequence on the host (``output_reserve``, src/llama-context.cpp:2118, b11434)."""
    n_bytes = 4 * model.n_vocab * shape.n_seq
    return Term(
        "output buffer", n_bytes, Source.DERIVED, f"4 B x {count(model.n_vocab)} logits x {shape.n_seq} sequences"
    )


def prompt_cache(settings: Settings, tool: Tool) -> tuple[Term, ...]:
    """llama-server keeps finished prompts in RAM up to ``-cram`` (8,192 MiB by default); others do not."""
    if tool is not Tool.SERVER or settings.cache_ram_mib <= 0:
        return ()
    detail = f"upper limit {count(settings.cache_ram_mib)} MiB, filled as prompts come; 0 turns it off"
    return (Term("prompt cache (-cram)", settings.cache_ram_mib * MIB, Source.DERIVED, detail),)


def checkpoints(settings: Settings, tool: Tool, n_bytes: int) -> tuple[Term, ...]:
    """Context checkpoints of llama-server for models whose state cannot be rolled back.

    Each of up to ``--ctx-checkpoints`` per slot holds the recurrent state and the sliding cache of one
    sequence (``create_checkpoint``, tools/server/server-context.cpp:2513, b11434).

    Args:
        n_bytes: state and sliding caches of all slots together.
    """
    if tool is not Tool.SERVER or settings.ctx_checkpoints <= 0 or not n_bytes:
        return ()
    detail = f"up to {settings.ctx_checkpoints} per slot x {count(n_bytes)} B of state and sliding cache"
    return (Term("context checkpoints", n_bytes * settings.ctx_checkpoints, Source.DERIVED, detail),)


def drafts(settings: Settings) -> bool:
    """Whether multi-token prediction runs, and with it a second context."""
    return settings.spec_type == MTP
