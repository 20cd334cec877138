"""The rates a prediction stands on: what the machine reports, else a stated assumption.

Every physical parameter of the speed model is in this file, with its source.
"""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Final, NamedTuple

from planner.facts import pcie
from planner.facts.machine import Backend, Cpu, Disk, Gpu, Machine
from planner.facts.reading import Reading, Source

if TYPE_CHECKING:
    from planner.cost.known_cpus import KnownCpu
    from planner.cost.known_gpus import KnownGpu

RAM_SHARE: Final = 0.5
"""Share of RAM read bandwidth that expert multiplies reach in decode: 47 of 95.6 GB/s (qwen3-30b-a3b, 16
threads, b11434: 0.48 ms per host layer of 22.8 MB active experts), 33.0 of 64 GB/s (177 B MoE, 24 threads)."""

VRAM_SHARE: Final = 0.7
"""Share of VRAM bandwidth that decode multiplies reach; with ``LAYER_S`` it gives 7.1 ms per token of
qwen3-30b-a3b fully on an RTX 3090 Ti (140 tok/s published)."""

LAYER_S: Final = 7.5e-5
"""Fixed time of one block on a GPU in decode: launches and small operations. 60 us on an H200 (3.46 ms per token of
qwen3-30b-a3b, of which 0.55 are bytes; b11549), 94 us on an RTX 3090 Ti with a build of May 2025."""

RECURRENT_S: Final = 7.5e-5
"""The same again for a block with recurrent state: more and smaller operations (Qwen3.6-35B-A3B and Qwen3-Coder-Next
on single RTX cards, public reports)."""

INDEXER_CELL_S: Final = 3.5e-8
"""Time per cell and block to choose which cells a token attends to: with 12 such blocks a token takes 0.3 to 0.6 us
longer per token of depth (qwen4exp on an RTX 4080 SUPER, contexts of 512 to 64,491)."""

CROSSING_S: Final = 1.6e-5
"""Round trip of one activation between host and device (177 B MoE on PCIe 4.0, measured)."""

STAGING_BPS: Final = 25e9
"""CUDA copies pageable memory through a pinned buffer. One core fills it at this rate, or at half of what RAM reads
where that is less; the link comes after. It gives 12.1 of 23.46 GB/s (14.28 alone and 10.8 in prefill measured, PCIe
4.0, Windows, 64 GB/s of RAM) and 17 of 55 GB/s (16.5 and 20 on two H200 machines, 6 on two more)."""

PIECE_S: Final = 2e-5
"""A copy of pageable memory waits this long beside its bytes; experts that are neighbours are one copy. 19 to 26 us
(177 B MoE, ubatch 64 to 512 of one prompt, RTX 4080 SUPER under Windows)."""

FLOPS_PER_BYTE: Final = 100.0
"""f16 rate assumed from VRAM bandwidth where it is not known: 76 to 206 FLOP per byte on cards since 2020."""

DENSE_SHARE: Final = 0.4
"""Share of the f16 rate that a dense quantised multiply reaches for a large batch."""

EXPERT_SHARE: Final = 0.125
"""The same for expert multiplies (``MUL_MAT_ID``), the constant that kernels change most: 0.06 to 0.12 fit builds of
2025, 0.1 to 0.3 those of 2026, more on GeForce than on data-centre cards (benchmarks/replay: 29 prompts wholly on GPUs
and the published rows)."""

METAL_GAIN: Final = 1.9
"""Multiplies on Apple GPUs reach so much more of the f16 rate, which is published as that of f32: 0.77 instead of 0.4
for dense ones (8B Q4_K_M on an M1 Max, 500 tok/s, public report)."""

EXPERT_HALF_TOKENS: Final = 32.0
"""Tokens per expert at which an expert multiply reaches half of that: tiles of up to 128 tokens that few fill."""

ROW_PASSES: Final = 6.0
"""How often the activations of a token are written to or read from VRAM between multiplies, in f32: norms, sums of
streams and experts, gates, convolutions. With it a model of four residual streams takes a seventh of its prefill for
them (measured on another engine: 694 of 4,676 ms, qwen4exp, ddalcu/mlx-serve#366)."""

SCAN_FLOP: Final = 8.0
"""Operations per token and element of a recurrent state (``GATED_DELTA_NET``: decay, two products, an update)."""

SCAN_SHARE: Final = 0.02
"""Share of the f16 rate that the scan reaches, one token after the other: 0.51 us per token of 32 heads of 128 x 128 on
an RTX 5090 (ggml-org/llama.cpp#22587), 3.6 us on a Radeon 8060S (AMD-Ecosystem/llama.cpp#54)."""

ATTENTION_SHARE: Final = 0.4
"""Share of the f16 rate of flash attention: 9.5 ns per token and token of depth (qwen3-30b-a3b, RTX 3090 Ti)."""

CORE_SCORE_FLOPS: Final = 5.5e9
"""What a core reaches in attention of one token, where every head reads the cache for itself, whatever its vectors:
10.7 GFLOP/s on two AVX2 cores (65, 35 and 15 tok/s at depths of 0, 2,048 and 8,000), 12 on two AVX-512 cores (67, 37
and 16.4; llama-bench b11549, the demo model)."""

CORE_PROMPT_SCORE_FLOPS: Final = 3.0e10
"""The same for tokens of a prompt, computed together: on those AVX-512 cores one of 8,000 tokens took 4.2 to 4.8 ms
more for each than one of 256 or 512, which is 27 to 32 GFLOP/s per core."""

QUANTISED_CACHE_COST: Final = 2.0
"""Time that a GPU takes to read a quantised cache in decode, against an f16 one of as many elements: at a depth of
16,384 a token took 17.9 ms with f16 and 19.1 with q8_0 where 0.5 ms are the f16 cache's (qwen3-30b-a3b, H200); at
31,723 no difference in 65 ms (qwen4exp, RTX 4080 SUPER)."""

SKEW: Final = 0.2
"""How unevenly real text uses experts: of their share ``p`` per token, ``t`` tokens touch
``1 - (1 + t p / SKEW) ** -SKEW`` of all, as if rates were Gamma distributed with this shape. Within 0.03 of the
distinct experts in the published route traces of gemma-4-26b-a4b, gpt-oss-120b and qwen3-30b-a3b for 2 to 128
tokens, 0.09 of those of a model of 512 experts for 1,024 to 8,192 (zhaoyilun/moe-working-set-16gb)."""

THREAD_POWER: Final = 0.8
"""Bytes per second that fewer threads than cores read go with this power of their share: 4, 8, 12 of 16 threads gave
0.35, 0.53, 0.83 of the expert time (qwen3-30b-a3b, b11434)."""

CORE_FLOPS: Final = {"avx512f": 6.8e10, "avx2": 3.5e10, "neon": 3.0e10}
"""Multiply rate of one core in a batch: 1.1 TFLOP/s over 16 AVX-512 cores (b11434, ``--no-op-offload``);
AVX2 and NEON assumed at about half."""

UNPACKED_SHARE: Final = 0.7
"""Share of a core's multiply rate that is left without repacked weights; assumed."""

OTHER_CORE_FLOPS: Final = 1e10

READ_SHARE: Final = 0.8
"""Share of the channels' theoretical rate that reading on all cores reaches: 598 of 614 GB/s (EPYC 9355, OCCT) and
64 of 96 GB/s (Ryzen 7 7800X3D, one chiplet) are published; between the two."""

ASSUMED_RAM_BPS: Final = 50e9
"""Dual-channel DDR4-3200 is 51.2 GB/s in theory."""

ASSUMED_VRAM_BPS: Final = 300e9
ASSUMED_PINNED_BPS: Final = 12e9
"""PCIe 3.0 x16 or 4.0 x8."""

ASSUMED_DISK_BPS: Final = 3e8
"""Paging through a mapping on an NVMe disk: ``MAPPED_SHARE`` of the 1.1 to 2.0 GB/s that direct reads measured."""

MAPPED_SHARE: Final = 0.19
"""Paging through a cold mapping against one direct read at a time of the same slice: 286 of 1,528 MB/s (540 KiB, four
threads, ext4 on a virtual disk; benchmarks/probes/README.md)."""

DENSE_SLICE: Final = 1 << 20
"""Piece in which a model without experts is paged."""


class GpuRates(NamedTuple):
    """One device: bytes per second and FLOP per second."""

    memory: Reading
    pinned: Reading
    pageable: Reading
    f16: Reading


class Rates(NamedTuple):
    """All rates of a machine; ``gpus`` by device id."""

    ram: Reading
    disk: Reading
    core_flops: Reading
    cores: int
    gpus: dict[str, GpuRates]
    timed: frozenset[tuple[str, str]] = frozenset()
    """Devices, and where the experts were (``device`` or ``host``), of which layers of the model were timed."""

    def vram(self, device: str) -> float:
        """Bytes per second that multiplies read from a device's memory."""
        return self.gpus[device].memory.value * VRAM_SHARE


def _assumed(value: float, why: str) -> Reading:
    return Reading(value, Source.ASSUMED, why)


def _known_cpu(cpu: Cpu) -> KnownCpu | None:
    from planner.cost.known_cpus import known_cpu  # a table that is needed only where nothing was measured

    return known_cpu(cpu.name, cpu.physical_cores)


def _known_gpu(gpu: Gpu) -> KnownGpu | None:
    if gpu.memory_bps and gpu.f16_flops and gpu.h2d_pinned_bps:
        return None
    from planner.cost.known_gpus import known_gpu  # as above

    return known_gpu(gpu.name, gpu.total_bytes)


def _gpu_rates(gpu: Gpu, ram: Reading, cpu: Cpu) -> GpuRates:
    known = _known_gpu(gpu)
    shared = Reading(ram.value, ram.source, "shares RAM") if gpu.unified else None
    memory = gpu.memory_bps or _published(known) or shared or _assumed(ASSUMED_VRAM_BPS, "not reported")
    pinned = gpu.h2d_pinned_bps or shared or _link(known, cpu)
    pageable = gpu.h2d_pageable_bps or _staged(pinned, ram, gpu.backend)
    return GpuRates(memory, pinned, pageable, gpu.f16_flops or _multiplies(known, memory))


def _staged(pinned: Reading, ram: Reading, backend: Backend | None) -> Reading:
    """CUDA copies pageable memory through a pinned buffer: the processor's copy and the link one after the other."""
    if backend is not Backend.CUDA:
        return _assumed(pinned.value, "as the pinned rate")
    copy = min(STAGING_BPS, ram.value / 2)
    return _assumed(1.0 / (1.0 / pinned.value + 1.0 / copy), f"staged at {copy / 1e9:,.3g} GB/s")


def _published(known: KnownGpu | None) -> Reading | None:
    if known is None or known.memory_bps is None:
        return None
    return _assumed(known.memory_bps, f"{known.name}: {known.memory_bps / 1e9:,.4g} GB/s published")


def _multiplies(known: KnownGpu | None, memory: Reading) -> Reading:
    if known is not None and known.f16_flops is not None:
        return _assumed(known.f16_flops, f"{known.name}: {known.f16_flops / 1e12:,.4g} TFLOP/s published")
    return _assumed(memory.value * FLOPS_PER_BYTE, f"{FLOPS_PER_BYTE:g} FLOP per byte of VRAM rate")


def _link(known: KnownGpu | None, cpu: Cpu) -> Reading:
    """The connector of the card at the generation that both it and the processor know."""
    if known is None or known.pcie is None:
        return _assumed(ASSUMED_PINNED_BPS, "link not reported")
    generation, lanes = known.pcie
    host = _known_cpu(cpu)
    found = pcie.pinned(min(generation, host.pcie) if host else generation, lanes)
    return _assumed(found.value, f"{known.name}: {found.method}") if found else _assumed(ASSUMED_PINNED_BPS, "no link")


def _ram_rate(machine: Machine) -> Reading:
    """Measured or stated; else by the processor's memory channels; else a flat figure."""
    if machine.ram.read_bps:
        return machine.ram.read_bps
    known = _known_cpu(machine.cpu)
    if known is None:
        return _assumed(ASSUMED_RAM_BPS, "not measured")
    full = known.theoretical_bps
    method = (
        f"{known.name}: {known.channels} channels of {known.mega_transfers:,} MT/s,"
        f" {READ_SHARE:g} of {full / 1e9:,.4g} GB/s"
    )
    return _assumed(full * READ_SHARE, method)


def _core_flops(cpu: Cpu) -> Reading:
    name = next((isa for isa in CORE_FLOPS if isa in cpu.isa), None)
    known = None if cpu.isa else _known_cpu(cpu)
    if known is not None:
        return _assumed(CORE_FLOPS[known.isa], f"one core with {known.isa}, by its name")
    if name is None:
        return _assumed(OTHER_CORE_FLOPS, "no known vector extension")
    return _assumed(CORE_FLOPS[name], f"one core with {name}")


def _disk_rate(disk: Disk | None, slice_bytes: int) -> Reading:
    """What paging reaches: llama.cpp pages experts through its mapping.

    A measured rate of that stands, capped by the disk's at an expert slice and the deepest queue. Without, a share of
    the disk's rate for one read at a time is assumed: page faults of a thread wait for each other.
    """
    if disk is None or not (disk.read_curve or disk.mapped_bps):
        return _assumed(ASSUMED_DISK_BPS, "not measured")
    if disk.mapped_bps is None:
        alone = _at_slice(disk, min(point.queue_depth for point in disk.read_curve), slice_bytes)
        method = (
            f"paging through a mapping not measured: {MAPPED_SHARE:g} of {alone.value / 1e9:,.3g} GB/s for one read"
        )
        return _assumed(alone.value * MAPPED_SHARE, f"{method} at a time")
    if not disk.read_curve:
        return disk.mapped_bps
    deepest = _at_slice(disk, max(point.queue_depth for point in disk.read_curve), slice_bytes)
    return min(disk.mapped_bps, deepest, key=lambda reading: reading.value)


def _at_slice(disk: Disk, queue_depth: int, slice_bytes: int) -> Reading:
    """The curve at a queue depth it has, at the block nearest to an expert slice."""
    points = (point for point in disk.read_curve if point.queue_depth == queue_depth)
    return min(points, key=lambda point: abs(log2(point.block_bytes / slice_bytes))).bps


def rates_of(machine: Machine, slice_bytes: int | None = None) -> Rates:
    """Reported and measured rates where there are any, assumptions elsewhere.

    Args:
        slice_bytes: piece in which experts are read from the disk; None for a model without any.
    """
    ram, cpu = _ram_rate(machine), machine.cpu
    return Rates(
        ram=ram,
        disk=_disk_rate(machine.disk, slice_bytes or DENSE_SLICE),
        core_flops=_core_flops(cpu),
        cores=cpu.performance_cores or cpu.physical_cores or cpu.logical_cores or 4,
        gpus={gpu.id: _gpu_rates(gpu, ram, cpu) for gpu in machine.gpus},
        timed=frozenset((rate.device, rate.experts) for rate in machine.layers if rate.prefill_s_per_token),
    )
