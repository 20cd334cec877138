"""How llama.cpp spells each setting, by build and by tool, and other engines after it: the one table.

Builds are upstream build numbers. Where no build is given the flag is older than every build that
moeplan was checked against; sources are ``common/arg.cpp`` of b11434 and ``--help`` of b11549.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from planner.plans.settings import Tool

NEWEST_BUILD: Final = 11549
"""The newest build the table was checked against."""

FA_VALUE_SINCE: Final = 6325
"""``-fa`` takes a value, and all layers go to the GPU by default, from here on (ggml-org/llama.cpp#15434)."""

AUTO_SLOTS_SINCE: Final = 7079
"""First build seen to open four slots by itself (ggml-org/llama.cpp#16736, #17300)."""

OVERRIDE_SINCE: Final = 5064
"""First build seen with ``-ot`` (ggml-org/llama.cpp#12798); it came with #11397 a few days before."""

CHECKPOINTS_SINCE: Final = 6325
"""First build taken to have ``--swa-checkpoints``: ggml-org/llama.cpp#15293 is of August 2025, this build of its end.
What is older may have it and goes without."""

CTX_CHECKPOINTS_SINCE: Final = 6730
"""First build taken to say ``--ctx-checkpoints`` (ggml-org/llama.cpp#16382, opened on 2025-10-02): that of ``-cram``
(#16391), opened the same day. All later ones take the old name, too."""

_COMMON: Final = (Tool.SERVER, Tool.COMPLETION, Tool.FIT_PARAMS)
_ALL: Final = (*_COMMON, Tool.BENCH)
_SERVER: Final = (Tool.SERVER,)


class Kind(StrEnum):
    """Form of the value on the command line."""

    TEXT = "text"
    INT = "int"
    LAYERS = "layers"
    """A number, ``auto`` or ``all``."""
    SWITCH = "switch"
    """No value; ``negative`` spellings say False. llama-bench wants 0 or 1."""
    CHOICE = "choice"
    LIST = "list"
    FLOATS = "floats"
    OVERRIDES = "overrides"


class Flag(NamedTuple):
    """One setting's spelling.

    Args:
        setting: field of ``Settings``, or a name of its own for what is not one (``model``, ``fit``, …).
        names: spellings; the first is printed.
        negative: spellings for False (switches only).
        since, until: first build that has it, first build that no longer has it.
        formerly: its one name before a build, and that build.
        env: environment variable of llama-server, empty if it has none.
        bench: llama-bench's spellings; empty where it has none.
        bench_negative: llama-bench's flag states the opposite (``-nopo 1``).
        always: printed even at its default, because defaults differ by build or by tool.
        neutral: values that a build without the flag gives anyway.
        loss: what a build without it cannot do; empty if nothing depends on it.
        absent: what a build without it does; then the flag is left out, and a caution says so.
        server_only: the setting means nothing to the other tools, so they may lack the flag.
        reason: why it is there, where no rule speaks for it.
        choices: allowed words of a CHOICE.
    """

    setting: str
    names: tuple[str, ...]
    kind: Kind
    negative: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    formerly: tuple[str, int] | None = None
    env: str = ""
    tools: tuple[Tool, ...] = _ALL
    bench: tuple[str, ...] = ()
    bench_negative: bool = False
    always: bool = False
    neutral: tuple[object, ...] = ()
    loss: str = ""
    absent: str = ""
    server_only: bool = False
    reason: str = ""
    choices: tuple[str, ...] = ()


KV_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
LOAD_MODES: Final = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")

FLAGS: Final[tuple[Flag, ...]] = (
    Flag("model", ("-m", "--model"), Kind.TEXT, env="LLAMA_ARG_MODEL", bench=("-m", "--model"), always=True,
         reason="the file that was planned for"),
    Flag("model_url", ("-mu", "--model-url"), Kind.TEXT, env="LLAMA_ARG_MODEL_URL", tools=_COMMON,
         loss="the model must be downloaded first", reason="llama.cpp downloads it, if it was built with HTTPS"),
    Flag("fit", ("-fit", "--fit"), Kind.CHOICE, since=7407, env="LLAMA_ARG_FIT", tools=_COMMON, always=True,
         neutral=("off",), reason="placement is explicit here; llama.cpp's own fit gives up beside it"),
    Flag("rpc", ("--rpc",), Kind.LIST, env="LLAMA_ARG_RPC", bench=("-rpc", "--rpc"), neutral=((),),
         loss="remote devices cannot be used", reason="servers of the remote devices"),
    Flag("devices", ("-dev", "--device"), Kind.LIST, env="LLAMA_ARG_DEVICE", bench=("-dev", "--device"),
         reason="only these devices take part, in this order"),
    Flag("n_ctx", ("-c", "--ctx-size"), Kind.INT, env="LLAMA_ARG_CTX_SIZE", tools=_COMMON, always=True,
         reason="context of all slots together"),
    Flag("n_parallel", ("-np", "--parallel"), Kind.INT, env="LLAMA_ARG_N_PARALLEL", tools=_COMMON, always=True,
         reason="slots; llama-server alone would open four"),
    Flag("kv_unified", ("-kvu", "--kv-unified"), Kind.SWITCH, negative=("-no-kvu", "--no-kv-unified"),
         env="LLAMA_ARG_KV_UNIFIED", tools=_SERVER, neutral=(False,), loss="each slot gets n_ctx / slots only",
         server_only=True, reason="slots share one cache, so one of them may use all of it"),
    Flag("n_gpu_layers", ("-ngl", "--n-gpu-layers", "--gpu-layers"), Kind.LAYERS, env="LLAMA_ARG_N_GPU_LAYERS",
         bench=("-ngl", "--n-gpu-layers"), always=True, reason="counted from the end; blocks + 1 is everything"),
    Flag("split_mode", ("-sm", "--split-mode"), Kind.CHOICE, env="LLAMA_ARG_SPLIT_MODE",
         bench=("-sm", "--split-mode"), choices=("none", "layer", "row", "tensor"), reason="how devices share"),
    Flag("tensor_split", ("-ts", "--tensor-split"), Kind.FLOATS, env="LLAMA_ARG_TENSOR_SPLIT",
         bench=("-ts", "--tensor-split"),
         reason="by bytes after overrides; llama.cpp alone splits by free memory before them"),
    Flag("override_tensor", ("-ot", "--override-tensor"), Kind.OVERRIDES, since=OVERRIDE_SINCE,
         env="LLAMA_ARG_OVERRIDE_TENSOR", bench=("-ot", "--override-tensor"), neutral=((),),
         loss="tensors stay with their layer; --pin n-cpu-moe=0 plans whole layers",
         reason="first match wins, so it stands before --n-cpu-moe"),
    Flag("n_cpu_moe", ("--n-cpu-moe", "-ncmoe"), Kind.INT, since=6089, env="LLAMA_ARG_N_CPU_MOE",
         bench=("-ncmoe", "--n-cpu-moe"), always=True, neutral=(0,),
         loss="experts stay with their layer; --pin n-cpu-moe=0 plans whole layers",
         reason="experts of the first N blocks stay in host memory"),
    Flag("moe_cache_mib", ("--moe-cache-mib",), Kind.INT, since=11505, env="LLAMA_ARG_MOE_CACHE_MIB",
         tools=_COMMON, neutral=(0,), loss="experts in host memory are never cached on the GPU",
         reason="GPU cache for experts of host blocks"),
    Flag("n_batch", ("-b", "--batch-size"), Kind.INT, env="LLAMA_ARG_BATCH", bench=("-b", "--batch-size"),
         always=True, reason="at least the ubatch"),
    Flag("n_ubatch", ("-ub", "--ubatch-size"), Kind.INT, env="LLAMA_ARG_UBATCH", bench=("-ub", "--ubatch-size"),
         always=True, reason="tokens computed at once in prefill"),
    Flag("type_k", ("-ctk", "--cache-type-k"), Kind.CHOICE, env="LLAMA_ARG_CACHE_TYPE_K", choices=KV_TYPES,
         bench=("-ctk", "--cache-type-k"), always=True, reason="type of the K cache"),
    Flag("type_v", ("-ctv", "--cache-type-v"), Kind.CHOICE, env="LLAMA_ARG_CACHE_TYPE_V", choices=KV_TYPES,
         bench=("-ctv", "--cache-type-v"), always=True, reason="type of the V cache"),
    Flag("flash_attn", ("-fa", "--flash-attn"), Kind.CHOICE, env="LLAMA_ARG_FLASH_ATTN",
         bench=("-fa", "--flash-attn"), always=True, choices=("on", "off", "auto"), reason="attention kernel"),
    Flag("load_mode", ("--load-mode", "-lm"), Kind.CHOICE, since=10114, env="LLAMA_ARG_LOAD_MODE",
         bench=("-lm", "--load-mode"), always=True, choices=LOAD_MODES, reason="how the weights get into memory"),
    Flag("threads", ("-t", "--threads"), Kind.INT, env="LLAMA_ARG_THREADS", bench=("-t", "--threads"),
         reason="CPU threads in decode"),
    Flag("threads_batch", ("-tb", "--threads-batch"), Kind.INT, tools=_COMMON, reason="CPU threads in prefill"),
    Flag("op_offload", ("--op-offload",), Kind.SWITCH, negative=("--no-op-offload",),
         bench=("-nopo", "--no-op-offload"), bench_negative=True, neutral=(True,),
         loss="large batches of host experts are copied to the GPU",
         reason="host experts are computed where they are, in prefill as well"),
    Flag("kv_offload", ("-kvo", "--kv-offload"), Kind.SWITCH, negative=("-nkvo", "--no-kv-offload"),
         env="LLAMA_ARG_KV_OFFLOAD", bench=("-nkvo", "--no-kv-offload"), bench_negative=True,
         neutral=(True,), loss="the KV cache stays on the devices", reason="the whole KV cache stays in RAM"),
    Flag("swa_full", ("--swa-full",), Kind.SWITCH, env="LLAMA_ARG_SWA_FULL", tools=_COMMON, neutral=(False,),
         loss="sliding-window layers keep the window only", reason="full-length cache on sliding-window layers"),
    Flag("no_host", ("--no-host",), Kind.SWITCH, env="LLAMA_ARG_NO_HOST", bench=("--no-host",), neutral=(False,),
         loss="host weights go to the pinned buffer type", reason="host weights skip the pinned buffer type"),
    Flag("repack", ("--repack",), Kind.SWITCH, negative=("-nr", "--no-repack"), env="LLAMA_ARG_REPACK",
         bench=("--repack",), neutral=(True,), loss="host weights are repacked", reason="no repacked second copy"),
    Flag("spec_type", ("--spec-type",), Kind.TEXT, env="LLAMA_ARG_SPEC_TYPE", tools=_SERVER, neutral=(None,),
         loss="no speculative decoding of this type", reason="speculative decoding"),
    Flag("cache_ram_mib", ("-cram", "--cache-ram"), Kind.INT, since=6730, env="LLAMA_ARG_CACHE_RAM", tools=_SERVER,
         always=True, neutral=(0, 8192), server_only=True, reason="prompt cache of llama-server in host RAM, MiB"),
    Flag("ctx_checkpoints", ("--ctx-checkpoints", "-ctxcp", "--swa-checkpoints"), Kind.INT, since=CHECKPOINTS_SINCE,
         formerly=("--swa-checkpoints", CTX_CHECKPOINTS_SINCE), env="LLAMA_ARG_CTX_CHECKPOINTS", tools=_SERVER,
         neutral=(0, 32), absent="it keeps no checkpoints, so a changed prompt is computed again from its start",
         server_only=True, reason="state checkpoints per slot, in host RAM"),
    Flag("host", ("--host",), Kind.TEXT, env="LLAMA_ARG_HOST", tools=_SERVER, always=True,
         reason="only this computer may connect"),
    Flag("port", ("--port",), Kind.INT, env="LLAMA_ARG_PORT", tools=_SERVER, always=True,
         reason="the default changed from 8080 to 9931 at b11521"),
)  # fmt: skip

READ_ONLY: Final[tuple[Flag, ...]] = (
    Flag("cpu_moe", ("-cmoe", "--cpu-moe"), Kind.SWITCH, env="LLAMA_ARG_CPU_MOE", tools=_COMMON),
    Flag("n_cpu_ffn", ("-ncffn", "--n-cpu-ffn"), Kind.INT, env="LLAMA_ARG_N_CPU_FFN", tools=_COMMON),
    Flag("main_gpu", ("-mg", "--main-gpu"), Kind.INT, env="LLAMA_ARG_MAIN_GPU", bench=("-mg", "--main-gpu")),
    Flag("kv_unified_per_slot", ("--kv-unified-per-slot",), Kind.INT, env="LLAMA_ARG_KV_UNIFIED_PER_SLOT",
         tools=_SERVER),
    Flag("mmap", ("--mmap",), Kind.SWITCH, negative=("--no-mmap",), until=10884, env="LLAMA_ARG_MMAP",
         bench=("-mmp", "--mmap")),
    Flag("mlock", ("--mlock",), Kind.SWITCH, until=10884, env="LLAMA_ARG_MLOCK", tools=_COMMON),
    Flag("direct_io", ("-dio", "--direct-io"), Kind.SWITCH, negative=("-ndio", "--no-direct-io"), until=10884,
         env="LLAMA_ARG_DIO", bench=("-dio", "--direct-io")),
    Flag("bench_prompt", (), Kind.TEXT, tools=(Tool.BENCH,), bench=("-p", "--n-prompt")),
    Flag("bench_answer", (), Kind.TEXT, tools=(Tool.BENCH,), bench=("-n", "--n-gen")),
    Flag("bench_pair", (), Kind.TEXT, tools=(Tool.BENCH,), bench=("-pg",)),
    Flag("bench_depth", (), Kind.TEXT, tools=(Tool.BENCH,), bench=("-d", "--n-depth")),
)  # fmt: skip
"""Flags that are read from a user's command line but never printed: others say the same."""

PRESETS: Final = Flag("models_preset", ("--models-preset",), Kind.TEXT, since=7389, tools=_SERVER,
                      loss="one model per server, started with its own command",
                      reason="a server that starts models by name")  # fmt: skip
"""Router mode; the first build seen with it (ggml-org/llama.cpp#18035)."""


def _same(*settings: str) -> tuple[Flag, ...]:
    """Rows that another engine spells as llama.cpp does, whatever its version."""
    return tuple(row._replace(since=None) for row in FLAGS if row.setting in settings)


def _none(setting: str, neutral: object, loss: str = "the sources name no flag for it") -> Flag:
    """A setting that the engine gives one value only."""
    return Flag(setting, (), Kind.TEXT, neutral=(neutral,), loss=loss)


IK_FLAGS: Final[tuple[Flag, ...]] = (
    *_same("model", "n_ctx", "n_parallel", "devices", "n_gpu_layers"),
    Flag("split_mode", ("-sm",), Kind.CHOICE, always=True, choices=("none", "layer"),
         loss="only whole layers are planned", reason="whole layers per device; its own default is none"),
    *_same("tensor_split", "override_tensor"),
    Flag("n_cpu_moe", (), Kind.INT, always=True, neutral=(0,), reason="experts of the first N blocks, by name"),
    *_same("n_batch", "n_ubatch"),
    Flag("type_k", ("-ctk",), Kind.CHOICE, always=True, choices=("f16", "bf16", "q8_0"),
         loss="others need a build with GGML_IQK_FA_ALL_QUANTS", reason="type of the K cache"),
    Flag("type_v", ("-ctv",), Kind.CHOICE, always=True, choices=("f16", "bf16", "q8_0"),
         loss="others need a build with GGML_IQK_FA_ALL_QUANTS", reason="type of the V cache"),
    *_same("flash_attn"),
    Flag("load_mode", (), Kind.CHOICE, always=True, choices=("none", "mmap", "mlock", "mmap+mlock"),
         loss="its documents name no direct I/O", reason="how the weights get into memory"),
    Flag("run_time_repack", ("-rtr",), Kind.SWITCH, reason="its own layouts for the CPU; no GPU copies from them"),
    *_same("threads", "threads_batch"),
    Flag("op_offload", (), Kind.SWITCH, negative=("-op -1,0",), reason="host experts are computed where they are"),
    Flag("kv_offload", (), Kind.SWITCH, negative=("-nkvo",), reason="the whole KV cache stays in RAM"),
    *_same("cache_ram_mib", "host", "port"),
    _none("model_url", None, "the model must be downloaded first"), _none("moe_cache_mib", 0), _none("rpc", ()),
    _none("kv_unified", False), _none("swa_full", False), _none("no_host", False), _none("spec_type", None),
)  # fmt: skip
"""ikawrakow/ik_llama.cpp docs/parameters.md (01544b4b). Left at its defaults: ``-mla 3``, ``-amb 0``, fused MoE on,
``--fit`` off (ikawrakow/ik_llama.cpp#1501). ``--n-cpu-moe`` keeps the first blocks there by that page and the last ones
by its users, so blocks are named instead."""

BIGMOE_FLAGS: Final[tuple[Flag, ...]] = (
    *_same("model"),
    Flag("moe_stream", ("--moe-stream",), Kind.SWITCH, reason="RAM does not hold the model: experts are read as used"),
    Flag("stream_cache_mib", ("--cache-mb",), Kind.INT, reason="expert cache in the RAM that the rest leaves, MiB"),
    Flag("dense_weights", ("--dense-weights",), Kind.CHOICE, reason="all but the experts stays in memory of its own"),
    *_same("n_ctx", "threads"),
    Flag("threads_batch", ("--threads-batch",), Kind.INT, reason="CPU threads in prefill"),
    Flag("n_ubatch", ("--ubatch",), Kind.INT, always=True, reason="tokens computed at once in prefill"),
    Flag("cpu_only", ("--devices",), Kind.CHOICE, reason="no device takes part"),
    Flag("n_gpu_layers", ("--gpu-layers",), Kind.INT, always=True, reason="counted from the end"),
    Flag("n_cpu_moe", ("--tensor-overrides",), Kind.INT, neutral=(0,), reason="experts that stay on the host"),
    Flag("chatml", ("--chatml",), Kind.SWITCH, reason="prompts in the model's own chat template"),
    Flag("session", ("--session",), Kind.SWITCH, reason="requests come on stdin; the model stays loaded"),
    Flag("load_mode", (), Kind.CHOICE, choices=("none", "mmap"), loss="it locks no memory"),
    _none("model_url", None, "the model must be downloaded first"), _none("n_parallel", 1, "it answers one at a time"),
    _none("type_k", "f16"), _none("type_v", "f16"), _none("override_tensor", ()), _none("moe_cache_mib", 0),
    _none("tensor_split", (), "it plans no split between devices"), _none("op_offload", True), _none("repack", True),
    _none("kv_offload", True), _none("kv_unified", False), _none("swa_full", False), _none("no_host", False),
    _none("spec_type", None), _none("rpc", ()),
)  # fmt: skip
"""Helldez/BigMoeOnEdge core/src/params.cpp (06e225fd), docs/serve.md. Left at its defaults: read lanes, overlap, direct
I/O, batch."""


def spellings(flag: Flag, tool: Tool) -> tuple[str, ...]:
    """Positive spellings in a tool; empty if the tool has no such flag."""
    if tool is Tool.BENCH:
        return flag.bench
    return flag.names if tool in flag.tools else ()
