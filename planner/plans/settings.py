"""One complete way to start llama.cpp, in our words; ``emit.flags`` spells it for a build."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Tool(StrEnum):
    """llama.cpp program that will run: they size outputs and slots differently."""

    SERVER = "llama-server"
    BENCH = "llama-bench"
    FIT_PARAMS = "llama-fit-params"
    COMPLETION = "llama-completion"


class FlashAttn(StrEnum):
    ON = "on"
    OFF = "off"
    AUTO = "auto"


class LoadMode(StrEnum):
    """``none`` reads weights into (pinned) memory; ``mmap`` maps the file."""

    NONE = "none"
    MMAP = "mmap"
    MLOCK = "mlock"
    MMAP_MLOCK = "mmap+mlock"
    DIO = "dio"


class SplitMode(StrEnum):
    NONE = "none"
    LAYER = "layer"
    ROW = "row"
    TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting that memory or speed depends on.

    Args:
        n_ctx: context of the whole server, all slots together, tokens.
        n_gpu_layers: counted from the end, the output layer is one: ``n_layer + 1`` is all.
        n_cpu_moe: experts of the first N blocks stay in host memory.
        override_tensor: ``(regex, buffer type)``, first match wins, before ``n_cpu_moe``.
        tensor_split: share per device of ``devices``; empty with fewer than two.
        devices: device ids that take part, in llama.cpp's order; empty means CPU only.
        threads, threads_batch: None leaves llama.cpp's default.
        kv_offload: False keeps the whole KV cache in host memory (``-nkvo``).
        cache_ram_mib: host prompt cache of llama-server (``-cram``).
        rpc: servers of remote devices, ``host:port``.
    """

    n_ctx: int
    n_gpu_layers: int
    n_cpu_moe: int = 0
    override_tensor: tuple[tuple[str, str], ...] = ()
    moe_cache_mib: int = 0
    n_ubatch: int = 512
    n_batch: int = 2048
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: FlashAttn = FlashAttn.AUTO
    n_parallel: int = 1
    load_mode: LoadMode = LoadMode.MMAP
    threads: int | None = None
    threads_batch: int | None = None
    tensor_split: tuple[float, ...] = ()
    devices: tuple[str, ...] = ()
    op_offload: bool = True
    spec_type: str | None = None
    kv_unified: bool = False
    swa_full: bool = False
    kv_offload: bool = True
    no_host: bool = False
    repack: bool = True
    split_mode: SplitMode = SplitMode.LAYER
    cache_ram_mib: int = 8192
    ctx_checkpoints: int = 32
    rpc: tuple[str, ...] = ()
