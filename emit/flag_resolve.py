"""What the flags of a command line come to: llama.cpp's own defaults and rules, tool by tool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from emit.dialect import Dialect
from emit.flag_spell import DENSE_REGEX, EXPERTS_REGEX, default_devices, flag_of
from emit.flag_table import AUTO_SLOTS_SINCE, FA_VALUE_SINCE
from emit.flag_values import largest
from planner.facts.machine import Machine
from planner.facts.model import Model
from planner.plans.settings import FlashAttn, LoadMode, Settings, SplitMode, Tool

Problem = tuple[str, str, str]
"""Flag, what was expected, what was found."""

_BENCH_PROMPT: Final = 512
_BENCH_ANSWER: Final = 128
_BENCH_FLAGS: Final = {"bench_prompt": "-p", "bench_answer": "-n", "bench_depth": "-d"}
_AUTO_SLOTS: Final = 4
_NEVER_NEGATIVE: Final = frozenset(
    {"n_batch", "n_ubatch", "n_ctx", "n_cpu_moe", "n_cpu_ffn", "moe_cache_mib", "main_gpu"}
)


@dataclass(slots=True)
class Raw:
    """Values as given, in order."""

    items: list[tuple[str, Any]] = field(default_factory=list)

    def add(self, setting: str, value: object) -> None:
        self.items.append((setting, value))

    def last(self, setting: str, default: Any = None) -> Any:
        return next((value for name, value in reversed(self.items) if name == setting), default)


def resolve(
    raw: Raw, model: Model, machine: Machine, tool: Tool, dialect: Dialect
) -> tuple[Settings, tuple[Problem, ...]]:
    """Settings that llama.cpp would run with if it left the flags alone (fit not applied).

    Returns:
        Settings and what is wrong with the flags; the settings count only if nothing is.
    """
    problems: list[Problem] = []
    for name, value in raw.items:
        if name in _NEVER_NEGATIVE and value < 0:
            problems.append((flag_of(name) or name, "0 or more", str(value)))
        if name == "n_batch" and value == 0:
            problems.append((flag_of(name) or name, "1 or more: llama.cpp does not start with an empty batch", "0"))
    if problems:
        return Settings(0, 0), tuple(problems)
    devices, split_mode = _devices(raw, machine, problems)
    n_parallel, unified = _slots(raw, tool, dialect, problems)
    overrides, n_cpu_moe = _overrides(raw, model, machine, problems)
    threads, threads_batch = (_threads(raw.last(name), machine) for name in ("threads", "threads_batch"))
    settings = Settings(
        n_ctx=_n_ctx(raw, model, tool, n_parallel, problems),
        n_gpu_layers=_n_gpu_layers(raw, model, devices, dialect),
        n_cpu_moe=n_cpu_moe,
        override_tensor=overrides,
        moe_cache_mib=raw.last("moe_cache_mib", 0),
        n_ubatch=raw.last("n_ubatch", 512) or raw.last("n_batch", 2048),  # 0 is the whole batch
        n_batch=raw.last("n_batch", 2048),
        type_k=raw.last("type_k", "f16"),
        type_v=raw.last("type_v", "f16"),
        flash_attn=_flash_attn(raw, dialect),
        n_parallel=n_parallel,
        load_mode=_load_mode(raw),
        threads=threads,
        threads_batch=threads_batch,
        tensor_split=_tensor_split(raw, devices),
        devices=devices,
        op_offload=raw.last("op_offload", True),
        spec_type=_spec_type(raw),
        kv_unified=unified,
        swa_full=raw.last("swa_full", False),
        kv_offload=raw.last("kv_offload", True),
        no_host=raw.last("no_host", False),
        repack=raw.last("repack", True),
        split_mode=split_mode,
        cache_ram_mib=raw.last("cache_ram_mib", 8192),
        ctx_checkpoints=raw.last("ctx_checkpoints", 32),
        rpc=raw.last("rpc", ()),
    )
    return settings, tuple(problems)


def _devices(raw: Raw, machine: Machine, problems: list[Problem]) -> tuple[tuple[str, ...], SplitMode]:
    """Devices in use; split mode none keeps the main GPU only (src/llama.cpp, b11434)."""
    asked = raw.last("devices")
    known = tuple(gpu.id for gpu in machine.gpus)
    if asked is None or asked == ("auto",):
        devices = default_devices(machine, rpc=bool(raw.last("rpc")))
    elif asked == ("none",):
        devices = ()
    else:
        devices = asked
        missing = [name for name in asked if name not in known]
        if missing:
            problems.append(("-dev", f"devices of this machine ({', '.join(known) or 'none'})", ", ".join(missing)))
    mode = SplitMode(raw.last("split_mode", "layer"))
    if mode is SplitMode.NONE and devices:
        main = raw.last("main_gpu", 0)
        if main >= len(devices):
            problems.append(("-mg", f"an index below {len(devices)}", str(main)))
        devices = devices[main : main + 1]
    return devices, mode


def _slots(raw: Raw, tool: Tool, dialect: Dialect, problems: list[Problem]) -> tuple[int, bool]:
    """Slots and unified KV: the server's auto is four and unified (tools/server/server.cpp:168, b11434)."""
    asked = raw.last("n_parallel")
    if asked == 0:
        problems.append(("-np", "a number of slots, or -1 for auto", "0"))
    if tool is Tool.SERVER and (asked is None or asked < 0) and dialect.build >= AUTO_SLOTS_SINCE:
        return _AUTO_SLOTS, True
    return max(asked or 1, 1), bool(raw.last("kv_unified", False))


def _n_ctx(raw: Raw, model: Model, tool: Tool, n_parallel: int, problems: list[Problem]) -> int:
    """Context in tokens as asked; 0 is the training context. llama-bench: its largest test plus depth."""
    if tool is Tool.BENCH:
        return _bench_ctx(raw, problems)
    asked = raw.last("n_ctx", 0)
    per_slot = raw.last("kv_unified_per_slot", 0)
    if raw.last("n_ctx") is None and per_slot > 0:
        return int(n_parallel * per_slot)
    if not asked and not model.n_ctx_train:
        problems.append(("-c", "a context size: the file names no training context", "none"))
    return int(asked or model.n_ctx_train)


def _bench_ctx(raw: Raw, problems: list[Problem]) -> int:
    """``n_ctx = n_prompt + n_gen + n_depth`` per test; prompt and answer are tests of their own."""
    sizes = {"bench_prompt": _BENCH_PROMPT, "bench_answer": _BENCH_ANSWER, "bench_depth": 0}
    for name in sizes:
        text = raw.last(name)
        if text is not None:
            try:
                sizes[name] = largest(str(text))
            except ValueError as error:
                problems.append((_BENCH_FLAGS[name], str(error), repr(text)))
    pair = 0
    for name, text in raw.items:
        if name == "bench_pair":
            words = str(text).split(",")
            if len(words) != 2 or not all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words):
                problems.append(("-pg", "two numbers, PROMPT,ANSWER", repr(text)))
            else:
                pair = max(pair, sum(map(int, words)))
    return max(sizes["bench_prompt"], sizes["bench_answer"], pair) + sizes["bench_depth"]


def _n_gpu_layers(raw: Raw, model: Model, devices: tuple[str, ...], dialect: Dialect) -> int:
    """Layers on devices; auto and all are every block and the output. None before b6325 without ``-ngl``."""
    everything = model.n_layer + 1
    default = -1 if dialect.build >= FA_VALUE_SINCE else 0
    asked = raw.last("n_gpu_layers", default)
    if not devices:
        return 0
    return everything if asked < 0 else min(asked, everything)


def _overrides(
    raw: Raw, model: Model, machine: Machine, problems: list[Problem]
) -> tuple[tuple[tuple[str, str], ...], int]:
    """Overrides in command-line order, and N of ``--n-cpu-moe``.

    llama.cpp keeps one list for ``-ot``, ``-cmoe``, ``-ncmoe`` and ``-ncffn``; the first match wins. N stays a
    number only where it would be last; before another override it becomes the patterns it stands for.
    """
    buffers = ("CPU", *(gpu.id for gpu in machine.gpus))
    entries: list[tuple[str, str] | int] = []
    for name, value in raw.items:
        if name == "override_tensor":
            entries += value
            wrong = [buffer for _, buffer in value if buffer.split("[")[0] not in buffers]
            if wrong:
                problems.append(("-ot", f"one of the buffers {' '.join(buffers)}", ", ".join(wrong)))
        elif name == "n_cpu_moe" and value:
            entries.append(min(value, model.n_layer))
        elif name == "cpu_moe" and value:
            entries.append(model.n_layer)
        elif name == "n_cpu_ffn":
            entries += [(rf"blk\.{index}{DENSE_REGEX}", "CPU") for index in range(min(value, model.n_layer))]
    n_cpu_moe = 0
    while entries and isinstance(entries[-1], int):
        n_cpu_moe = max(n_cpu_moe, int(str(entries.pop())))
    result: list[tuple[str, str]] = []
    for entry in entries:
        if isinstance(entry, int):
            result += [(rf"blk\.{index}{EXPERTS_REGEX}", "CPU") for index in range(entry)]
        else:
            result.append(entry)
    return tuple(result), n_cpu_moe


def _threads(asked: int | None, machine: Machine) -> int | None:
    """0 and below mean every logical core (common/arg.cpp, b11434)."""
    return asked if asked is None or asked > 0 else machine.cpu.logical_cores


def _flash_attn(raw: Raw, dialect: Dialect) -> FlashAttn:
    default = FlashAttn.AUTO if dialect.build >= FA_VALUE_SINCE else FlashAttn.OFF
    return FlashAttn(raw.last("flash_attn", default))


def _load_mode(raw: Raw) -> LoadMode:
    """The last word wins between ``--load-mode`` and the switches it replaced; auto maps the file."""
    mode, locked, direct = LoadMode.MMAP, False, False
    for name, value in raw.items:
        if name == "load_mode":
            mode, locked, direct = LoadMode("mmap" if value == "auto" else value), False, False
        elif name == "mmap":
            mode = LoadMode.MMAP if value else LoadMode.NONE
        elif name == "mlock":
            locked = bool(value)
        elif name == "direct_io":
            direct = bool(value)
    if direct:
        return LoadMode.DIO
    if locked:
        return LoadMode.MMAP_MLOCK if mode is LoadMode.MMAP else LoadMode.MLOCK
    return mode


def _tensor_split(raw: Raw, devices: tuple[str, ...]) -> tuple[float, ...]:
    """Shares by device; empty (free VRAM decides) with fewer than two devices or only zeros."""
    shares: tuple[float, ...] = raw.last("tensor_split", ())[: len(devices)]
    if len(devices) < 2 or not any(shares):
        return ()
    return shares + (0.0,) * (len(devices) - len(shares))


def _spec_type(raw: Raw) -> str | None:
    words = [word for name, value in raw.items if name == "spec_type" for word in str(value).split(",")]
    return ",".join(dict.fromkeys(word for word in words if word != "none")) or None
