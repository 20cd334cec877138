"""What no llama.cpp breakdown shows: the driver's own memory, output rows, prompt cache, checkpoints."""

from __future__ import annotations

from typing import Final

from planner.cost.blocks import PLAIN_TYPES
from planner.cost.shape import MTP, Shape, pad
from planner.facts.machine import Backend, DriverModel, Gpu
from planner.facts.model import Model, Role
from planner.facts.reading import Source
from planner.plans.memory import PROMPT_CACHE, Term
from planner.plans.settings import Settings, Tool
from planner.units import GIB, MIB, count, mib

THREAD_BYTES: Final = 2130
"""Of a bare CUDA context per thread that the multiprocessors hold at once: the driver reserves local memory for all of
them (CUDA driver API, ``CU_CTX_LMEM_RESIZE_TO_MAX``). 555 MiB on 188 multiprocessors of 1,536 threads, 107 on 34
(ggml-org/llama.cpp#23604), 256 on 82 (invoke-ai/InvokeAI#9413), 524 on 132 of 2,048 (benchmarks/pool): 2,015, 2,148,
2,131 and 2,031 bytes."""

DECODE_BYTES: Final = 40 * MIB
"""Kernels and graphs of decode: 289-293 MiB less a bare context of 250 in eight decode runs of a 16 GB Ada card under
WDDM (NVML peak minus desktop minus all buffers), prompts read elsewhere; 28 to 31 in three llama-bench runs without a
prompt on a Hopper card."""

PROMPT_BYTES: Final = 128 * MIB
"""Kernels of prompts, cuBLAS's workspace (32 MiB on Hopper, 4 elsewhere: cuBLAS reference, ``cublasSetWorkspace``) and
``FIRST_SCRATCH``: the middle of what 43 runs of llama-server and llama-bench on a Hopper card left above all other
terms here (b11434 and b11549, drivers of 2026, models of 64 to 256 experts, with and without an expert cache)."""

SPREAD_BYTES: Final = 18 * MIB
"""How far those runs lie above and below the middle. It is added: too little is a crash, or a lottery under WDDM. Of
later ones (the sweeps of benchmarks/replay, a third run of benchmarks/pool) one took more: 19 MiB, of a hybrid."""

PROMPT_TOKENS: Final = 32
"""Smaller ubatches run the kernels of decode."""

LARGE_THREADS: Final = 132 * 2048
LARGE_FROM: Final = 40 * GIB
USUAL_THREADS: Final = 80 * 1536
"""Threads where neither the driver nor the card's name tells: cards of data centres by their size, others as the two
that were measured."""

TABLE_SHARE: Final = 496
"""Host memory that a device may read stands in page tables on the device: 8 bytes per page of 4 KiB (NVIDIA's MMU
format, open-gpu-doc: a 512th), and 3 % for what holds them. 34 MiB more for 16,907 MiB pinned than for as much mapped,
20 for 9,882 (qwen3-30b-a3b, b11434 and b11549)."""

Q8_BYTES: Final = (36, 32)
ROW_PADDING: Final = 512
FIRST_SCRATCH: Final = 16 * MIB
"""llama.cpp's pool for steps in between, which no breakdown shows: MMQ quantises a prompt's activations to q8_1, 36
bytes for 32 values, once per selected expert, rows padded to 512 (``ggml_cuda_mul_mat_q``, b11434). Up to this size
another step is larger: nothing more from ubatch 512 to 1,024, 20 MiB more at 2,048 (qwen3-30b-a3b)."""

_CUDA_KERNELS: Final = (Backend.CUDA, Backend.ROCM)


def driver_context(gpu: Gpu, n_ubatch: int, pinned_bytes: int, activation_bytes: int) -> tuple[Term, ...]:
    """Driver memory of one llama.cpp process on a device, and what its kernels take beside the buffers.

    Nothing for RPC (the remote process holds it outside our buffers' device view) and Metal (shared heap).

    Args:
        pinned_bytes: host memory that the device may read.
        activation_bytes: of one token, quantised for its largest multiply.
    """
    backend = gpu.backend or Backend.CUDA
    if backend in (Backend.RPC, Backend.METAL):
        return ()
    prompts = n_ubatch >= PROMPT_TOKENS
    threads, told = _threads(gpu)
    n_bytes = threads * THREAD_BYTES + DECODE_BYTES + prompts * PROMPT_BYTES + SPREAD_BYTES
    detail = f"{count(threads)} resident threads ({told}), kernels and graphs"
    terms = [Term(f"{backend} context", n_bytes, Source.ASSUMED, detail)]
    if pinned_bytes:
        detail = f"a {TABLE_SHARE}th of {mib(pinned_bytes)} of page-locked host memory"
        terms.append(Term("page tables", pinned_bytes // TABLE_SHARE, Source.DERIVED, detail))
    scratch = n_ubatch * activation_bytes - FIRST_SCRATCH
    if scratch > 0 and backend in _CUDA_KERNELS:
        detail = f"{count(n_ubatch)} tokens x {count(activation_bytes)} B of q8_1, less what the context counts"
        terms.append(Term("quantised activations", scratch, Source.DERIVED, detail))
    return tuple(terms)


def _threads(gpu: Gpu) -> tuple[int, str]:
    """Threads that a device keeps resident, and who says so."""
    if gpu.threads:
        return gpu.threads, "its driver"
    from planner.cost.known_gpus import resident_threads  # tables that only a driver's silence needs

    known = resident_threads(gpu.name)
    if known:
        return known, "by its name"
    large = gpu.total_bytes >= LARGE_FROM and gpu.driver_model is not DriverModel.WDDM
    return LARGE_THREADS if large else USUAL_THREADS, "assumed by its size"


def activation_bytes(model: Model) -> int:
    """Of one token, as q8_1, for the block's multiply that needs most; nothing where no weight is quantised."""
    widest = 0
    for tensor in model.tensors:
        if tensor.layer is not None and len(tensor.shape) > 1 and tensor.type not in PLAIN_TYPES:
            rows = model.n_expert_used if tensor.role is Role.EXPERT else 1
            widest = max(widest, rows * pad(tensor.shape[0], ROW_PADDING))
    return widest * Q8_BYTES[0] // Q8_BYTES[1]


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
    return (Term(PROMPT_CACHE, settings.cache_ram_mib * MIB, Source.DERIVED, detail),)


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
