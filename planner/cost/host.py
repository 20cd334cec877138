"""Host memory by kind: mapped bytes can be evicted, pinned and anonymous ones cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.cost.tape import HOST
from planner.cost.weights import Placed
from planner.facts.machine import Backend, Gpu, Machine, Overflow
from planner.facts.reading import Source
from planner.plans.memory import Term, total
from planner.plans.settings import LoadMode, Settings
from planner.units import MIB, count

_PINNING: Final = (Backend.CUDA, Backend.ROCM, Backend.SYCL, Backend.VULKAN)
"""Backends with a pinned host buffer type (``ggml_backend_dev_host_buffer_type``, b11434)."""

_MARGIN: Final = {Overflow.SWAP: 0.04, Overflow.COMPRESS: 0.10, Overflow.KILL: 0.20, Overflow.NONE: 0.20}
_UNKNOWN_MARGIN: Final = 0.15
_LEAST_BYTES: Final = 256 * MIB
"""Helldez/BigMoeOnEdge, policy defaults."""


def margin_bytes(available: int, overflow: Overflow | None) -> int:
    """RAM to leave beside what cannot be evicted."""
    share = _UNKNOWN_MARGIN if overflow is None else _MARGIN[overflow]
    return max(int(available * share), _LEAST_BYTES)


def maps_file(settings: Settings) -> bool:
    """Whether weights on the host are the mapped file (``mlock`` alone does not map, b11434)."""
    return settings.load_mode in (LoadMode.MMAP, LoadMode.MMAP_MLOCK)


def pins(settings: Settings, gpus: Mapping[str, Gpu]) -> bool:
    """Whether some device offers page-locked host memory; compute and output buffers then use it.

    A pin that fails falls back to pageable memory in silence (ggml/src/ggml-cuda/ggml-cuda.cu:1271-1298, b11312).
    """
    return any((gpus[device].backend or Backend.CUDA) in _PINNING for device in settings.devices)


def locks(settings: Settings, machine: Machine) -> bool:
    """``pins`` of a machine's devices."""
    return pins(settings, {gpu.id: gpu for gpu in machine.gpus})


def host_model(placed: Placed, settings: Settings, gpus: Mapping[str, Gpu]) -> tuple[tuple[Term, ...], int, int, int]:
    """Terms of the weights on the host, and how many of their bytes are pinned, mapped and repacked.

    Order of host buffers (``make_cpu_buft_list``, src/llama-model.cpp:1078-1137, b11434): pinned type of the
    first device unless ``--no-host``, then the CPU's own layouts unless ``--no-repack``, then plain. Under
    mmap the pinned type is replaced by the mapped file; repacked weights are anonymous copies in any mode.
    """
    terms = placed.terms(HOST)
    if placed.lazy:
        detail = f"{count(placed.lazy)} B of lookup tables above 4 GiB: rows are read from disk as they are used"
        terms = (*terms, Term("weights lookup (lazy)", placed.lazy, Source.DERIVED, detail))
    pinned_first = pins(settings, gpus) and not settings.no_host
    repacked = placed.repackable if settings.repack and not pinned_first else 0
    rest = total(terms) - repacked - placed.lazy
    if maps_file(settings):
        return terms, 0, rest + placed.lazy, repacked
    return terms, rest if pinned_first else 0, placed.lazy, repacked
