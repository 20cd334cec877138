"""The machine as probes saw it (``moeplan.machine/1``). ``None`` is "not known", never zero."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from planner.facts.outcome import ProbeReport
from planner.facts.reading import Reading


class Os(StrEnum):
    LINUX = "linux"
    WINDOWS = "windows"
    MACOS = "macos"


class Overflow(StrEnum):
    """What the system does when RAM runs out."""

    SWAP = "swap"
    COMPRESS = "compress"
    KILL = "kill"
    NONE = "none"


class Backend(StrEnum):
    """ggml backend of a device."""

    CUDA = "cuda"
    ROCM = "rocm"
    VULKAN = "vulkan"
    METAL = "metal"
    SYCL = "sycl"
    RPC = "rpc"


class DriverModel(StrEnum):
    """Who owns VRAM: under WDDM the operating system pages it silently."""

    WDDM = "wddm"
    TCC = "tcc"
    LINUX = "linux"
    METAL = "metal"


@dataclass(frozen=True, slots=True)
class Cpu:
    """``read_threads``: the fewest threads that read RAM at its full rate."""

    name: str | None = None
    physical_cores: int | None = None
    performance_cores: int | None = None
    logical_cores: int | None = None
    isa: tuple[str, ...] = ()
    numa_nodes: int | None = None
    read_threads: Reading | None = None


@dataclass(frozen=True, slots=True)
class Ram:
    """Host memory; ``total_bytes`` and ``available_bytes`` already respect a container's limit.

    ``idle_bytes``: the most that was ever seen available here, to tell a busy moment from a small machine.
    """

    total_bytes: int
    available_bytes: int | None = None
    read_bps: Reading | None = None
    overflow: Overflow | None = None
    idle_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device as llama.cpp names it (``CUDA0``, ``RPC0``, …).

    ``used_bytes`` is what others hold now (desktop included); ``unified`` means it shares host RAM; ``threads`` is how
    many its multiprocessors hold at once.
    """

    id: str
    total_bytes: int
    name: str | None = None
    backend: Backend | None = None
    driver_model: DriverModel | None = None
    unified: bool = False
    used_bytes: int | None = None
    free_bytes: int | None = None
    memory_bps: Reading | None = None
    h2d_pinned_bps: Reading | None = None
    h2d_pageable_bps: Reading | None = None
    f16_flops: Reading | None = None
    driver: str | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """Disk rate at one block size and queue depth."""

    block_bytes: int
    queue_depth: int
    bps: Reading


@dataclass(frozen=True, slots=True)
class Disk:
    """Where the model lies; ``remote`` covers networks, host shares and FUSE programs.

    ``sequential_bps`` is one reader from front to back, ``mapped_bps`` expert slices touched in a cold mapping.
    """

    path: str
    filesystem: str | None = None
    device: str | None = None
    read_curve: tuple[ReadPoint, ...] = ()
    rotational: bool | None = None
    remote: bool = False
    sequential_bps: Reading | None = None
    mapped_bps: Reading | None = None


@dataclass(frozen=True, slots=True)
class LayerPoint:
    """Seconds one layer takes for a whole ubatch of ``tokens`` tokens in prefill."""

    tokens: int
    seconds: Reading


@dataclass(frozen=True, slots=True)
class LayerRate:
    """Measured time of one layer of one model on one device, seconds.

    Args:
        model: fingerprint of the model the layer was cut from.
        device: ``CPU`` or a device id: where attention and everything but the routed experts runs.
        kind: ``moe`` or ``dense``.
        expert_type: ggml type of the expert tensors; several are joined with ``+`` (``Q4_K+Q6_K``).
        decode_s: one token through one layer, at an empty cache.
        prefill_s_per_token: slope of a ubatch's time over its tokens.
        prefill_batch: largest ubatch that was measured.
        prefill_fixed_s: what one ubatch costs beside that.
        prefill_points: the times the two come from.
        experts: where the routed experts are: ``device``, or ``host`` (prefill then streams them, as llama.cpp does).
        read_bytes: weights one token reads in such a layer; scales the rate to layers of other types.
        layers: how many layers the difference spans.
        threads: CPU threads of the run; None if the CPU had no part in it.
        crossing_s: of ``host`` experts: decode beyond the two parts alone, the cost of going there and back.
    """

    model: str
    device: str
    kind: str
    expert_type: str | None = None
    decode_s: Reading | None = None
    prefill_s_per_token: Reading | None = None
    prefill_batch: int | None = None
    prefill_fixed_s: float = 0.0
    prefill_points: tuple[LayerPoint, ...] = ()
    experts: str = "device"
    read_bytes: int | None = None
    layers: int | None = None
    threads: int | None = None
    crossing_s: Reading | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """A llama.cpp build and what it accepts.

    Args:
        kind: ``llama.cpp``, ``llama-cpp-python`` or a fork's name.
        build: upstream build number (``b11549`` → 11549); None if it does not say.
        flags: long option names its ``--help`` lists.
        server: path of its llama-server; None for the embedded engine or a replayed machine.
    """

    kind: str
    build: int | None = None
    backends: tuple[str, ...] = ()
    kv_pairs_on_gpu: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    server: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    os: Os
    ram: Ram
    cpu: Cpu = Cpu()
    gpus: tuple[Gpu, ...] = ()
    disk: Disk | None = None
    layers: tuple[LayerRate, ...] = ()
    engine: Engine | None = None
    probes: tuple[ProbeReport, ...] = ()

    @property
    def wddm(self) -> bool:
        """Whether a GPU's memory is Windows' to page: what goes over is shared memory, and slow."""
        return any(gpu.driver_model is DriverModel.WDDM for gpu in self.gpus)
