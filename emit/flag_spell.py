"""Settings → llama.cpp flags, and flag → setting. The only place that spells a flag."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

from emit.dialect import Dialect, dialect_of
from emit.flag_table import FA_VALUE_SINCE, FLAGS, READ_ONLY, Flag, Kind, spellings
from planner.errors import EngineError, TargetError
from planner.facts.machine import Backend, Gpu, Machine
from planner.facts.model import Model
from planner.facts.workload import Workload
from planner.plans.settings import FlashAttn, LoadMode, Settings, Tool

_DEFAULTS: Final = {field.name: field.default for field in fields(Settings)}
_FIXED: Final = {"fit": "off", "host": "127.0.0.1", "port": 8080}
EXPERTS_REGEX: Final = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""llama.cpp's own expert pattern (``LLM_FFN_EXPS_REGEX``, common/common.h, b11434)."""
DENSE_REGEX: Final = r"\.ffn_(up|down|gate)\."
"""``LLM_FFN_DENSE_REGEX``, common/common.h, b11434."""


@dataclass(frozen=True, slots=True)
class Spelled:
    """One flag as printed: the setting it carries, and its tokens."""

    setting: str
    tokens: tuple[str, ...]
    reason: str

    @property
    def flag(self) -> str:
        return self.tokens[0]

    @property
    def value(self) -> str:
        """What stands after the flag; empty for a switch."""
        return " ".join(self.tokens[1:])


def spell(
    settings: Settings,
    model: Model,
    machine: Machine,
    *,
    tool: Tool = Tool.SERVER,
    build: int | None = None,
    workload: Workload | None = None,
) -> tuple[str, ...]:
    """Settings as argv tokens, without the program's name.

    Args:
        build: spell for this build instead of the machine's engine.
        workload: sizes of llama-bench's tests (default: those of ``Workload()``).

    Raises:
        TargetError: this llama.cpp cannot do what a setting asks; names flag, build and cost.
    """
    return tuple(
        token
        for item in spelled(settings, model, machine, tool=tool, build=build, workload=workload)
        for token in item.tokens
    )


def spelled(
    settings: Settings,
    model: Model,
    machine: Machine,
    *,
    tool: Tool = Tool.SERVER,
    build: int | None = None,
    workload: Workload | None = None,
    lenient: bool = False,
    explicit: frozenset[str] = frozenset(),
) -> tuple[Spelled, ...]:
    """The same, flag by flag. Raises as ``spell`` does.

    Args:
        lenient: leave out what this llama.cpp cannot do instead (a user's own flags, whose faults are findings).
        explicit: settings that are printed at their default, too, where a flag can say it.
    """
    dialect = dialect_of(machine, build)
    result = []
    for flag in FLAGS:
        value = value_of(flag, settings, model, machine, explicit=flag.setting in explicit)
        if value is None:
            continue
        try:
            found = tuple(_tokens(flag, value, dialect, tool, workload))
        except EngineError:
            if not lenient:
                raise
            found = ()
        result += [Spelled(flag.setting, tokens, flag.reason) for tokens in found]
    return tuple(result)


def setting_of(flag: str) -> str | None:
    """Name of the setting a spelling belongs to (``-ub`` → ``n_ubatch``), or None."""
    name = normal(flag)
    for row in (*FLAGS, *READ_ONLY):
        if name in row.names or name in row.negative or name in row.bench:
            return row.setting
    return None


def negates(flag: str) -> bool:
    """Whether a spelling says False (``--no-repack``)."""
    name = normal(flag)
    return any(name in row.negative for row in (*FLAGS, *READ_ONLY))


def flag_of(setting: str) -> str | None:
    """The spelling that is printed for a setting, or None if it is not a flag."""
    return next(
        (
            row.negative[0] if row.setting in _SAID_NO else row.names[0]
            for row in (*FLAGS, *READ_ONLY)
            if row.setting == setting and row.names
        ),
        None,
    )


def normal(token: str) -> str:
    """A long option with ``_`` reads like one with ``-`` (common/arg.cpp:826, b11434)."""
    return "--" + token[2:].replace("_", "-") if token.startswith("--") else token


def default_devices(machine: Machine, *, rpc: bool) -> tuple[str, ...]:
    """Devices llama.cpp takes by itself: remote ones, then GPUs, integrated ones only if there is no other.

    Source: src/llama.cpp:190-284, b11434. Remote devices exist only where ``--rpc`` names servers.
    """
    remote = [gpu.id for gpu in machine.gpus if gpu.backend is Backend.RPC and rpc]
    local: list[Gpu] = [gpu for gpu in machine.gpus if gpu.backend is not Backend.RPC]
    own = [gpu.id for gpu in local if not gpu.unified]
    return tuple(remote + own) or tuple(gpu.id for gpu in local)


_SAID_NO: Final = frozenset({"op_offload", "kv_offload", "repack"})
"""Switches that are on by default, so that only their negative is ever printed."""


def _is_url(path: str) -> bool:
    return path.lower().startswith(("https://", "http://"))


def value_of(
    flag: Flag, settings: Settings, model: Model, machine: Machine, *, explicit: bool = False
) -> object | None:
    """The value to print, or None to leave the flag out."""
    name = flag.setting
    if name in ("model", "model_url"):
        return model.path if (name == "model_url") == _is_url(model.path) else None
    if name in _FIXED:
        return _FIXED[name]
    value: object = getattr(settings, name)
    if name == "devices":
        usual = default_devices(machine, rpc=bool(settings.rpc))
        return None if value == usual and len(usual) < 2 and not explicit else value
    if name == "n_cpu_moe" and not model.is_moe and not value:
        return None
    if name == "n_batch":
        return max(settings.n_batch, settings.n_ubatch)
    if explicit:
        return value if _can_be_said(flag, value) else None
    if not flag.always and (value == _DEFAULTS[name] or value is None):
        return None
    return value


def _can_be_said(flag: Flag, value: object) -> bool:
    """False where only leaving the flag out gives the value."""
    return value not in (None, ()) and (value is not False or bool(flag.negative))


def _tokens(
    flag: Flag, value: object, dialect: Dialect, tool: Tool, workload: Workload | None
) -> Iterator[tuple[str, ...]]:
    """One flag's tokens, by setting where llama.cpp changed its mind, else by the table."""
    if flag.setting == "n_ctx" and tool is Tool.BENCH:
        yield from _bench_sizes(int(str(value)), workload or Workload())
    elif flag.setting == "load_mode" and not dialect.has(flag, tool):
        yield from old_load_mode(LoadMode(str(value)), tool)
    elif flag.setting == "flash_attn" and tool is not Tool.BENCH and dialect.build < FA_VALUE_SINCE:
        yield from _old_flash_attn(FlashAttn(str(value)), dialect)
    elif flag.setting == "n_cpu_moe" and not dialect.has(flag, tool):
        override = _row("override_tensor")
        if value and not dialect.has(override, tool):
            raise unsupported(flag, dialect, tool)
        if value:
            yield (spellings(override, tool)[0], f"{first_blocks(int(str(value)))}=CPU")
    elif dialect.has(flag, tool):
        yield spelling(flag, value, tool, dialect.names(flag, tool))
    elif value not in flag.neutral and flag.loss and not (flag.server_only and tool is not Tool.SERVER):
        raise unsupported(flag, dialect, tool)


def absent(settings: Settings, dialect: Dialect) -> tuple[str, ...]:
    """What this llama-server does without flags that it lacks and that are left out, a sentence each."""
    return tuple(
        f"b{dialect.build} has no {row.names[0]}: {row.absent}."
        for row in FLAGS
        if row.absent and getattr(settings, row.setting) not in row.neutral and not dialect.has(row, Tool.SERVER)
    )


def spelling(flag: Flag, value: object, tool: Tool, names: tuple[str, ...] = ()) -> tuple[str, ...]:
    """A flag with its value. Args: names: those of a build; default: as the table has them."""
    names = names or spellings(flag, tool)
    if flag.kind is not Kind.SWITCH:
        return (names[0], _text(flag, value, tool))
    if tool is Tool.BENCH:
        return (names[0], str(int(bool(value) != flag.bench_negative)))
    return tuple((names if value else flag.negative)[0].split(" "))


def _text(flag: Flag, value: object, tool: Tool) -> str:
    """A value in the form its flag takes (llama-bench separates with ``/`` and ``;``)."""
    bench = tool is Tool.BENCH
    if flag.kind is Kind.OVERRIDES and isinstance(value, tuple):
        separator = ";" if bench else ","
        return separator.join(_override(pattern, buffer, separator) for pattern, buffer in value)
    if flag.kind is Kind.FLOATS and isinstance(value, tuple):
        return ("/" if bench else ",").join(f"{x:.0f}" if float(x).is_integer() else repr(float(x)) for x in value)
    if flag.kind is Kind.LIST and isinstance(value, tuple):
        return ("/" if bench and flag.setting == "devices" else ",").join(value) or "none"
    return str(value)


def _override(pattern: str, buffer: str, separator: str) -> str:
    if separator in pattern or "=" in pattern:
        raise EngineError(
            "-ot", expected=f"a regex without {separator} and =", found=repr(pattern), advice="they end an entry"
        )
    return f"{pattern}={buffer}"


def first_blocks(n: int) -> str:
    """The pattern of the experts of the first ``n`` blocks."""
    return rf"blk\.({'|'.join(map(str, range(n)))}){EXPERTS_REGEX}"


def _row(setting: str) -> Flag:
    return next(row for row in (*FLAGS, *READ_ONLY) if row.setting == setting and row.names)


def _bench_sizes(n_ctx: int, workload: Workload) -> Iterator[tuple[str, ...]]:
    """Prompt, answer and depth whose largest test has ``n_ctx`` tokens (n_ctx = test + depth)."""
    prompt, answer = min(workload.prompt_tokens, n_ctx), min(workload.answer_tokens, n_ctx)
    yield ("-p", str(prompt))
    yield ("-n", str(answer))
    yield ("-d", str(n_ctx - max(prompt, answer)))


def old_load_mode(mode: LoadMode, tool: Tool) -> Iterator[tuple[str, ...]]:
    """Before ``--load-mode`` (b10114): mapping is the default, locking and direct I/O are switches."""
    if tool is Tool.BENCH:
        if mode in (LoadMode.MLOCK, LoadMode.MMAP_MLOCK):
            raise TargetError("--load-mode", expected="none, mmap or dio in an old llama-bench", found=str(mode))
        yield ("-dio", "1") if mode is LoadMode.DIO else ("-mmp", str(int(mode is LoadMode.MMAP)))
        return
    if mode is LoadMode.DIO:
        yield ("--direct-io",)
    if mode in (LoadMode.NONE, LoadMode.MLOCK):
        yield ("--no-mmap",)
    if mode in (LoadMode.MLOCK, LoadMode.MMAP_MLOCK):
        yield ("--mlock",)


def _old_flash_attn(value: FlashAttn, dialect: Dialect) -> Iterator[tuple[str, ...]]:
    """Before b6325 ``-fa`` was a switch, off by default."""
    if value is FlashAttn.AUTO:
        raise TargetError(
            "--flash-attn auto",
            expected=f"a llama.cpp from b{FA_VALUE_SINCE} on",
            found=f"b{dialect.build}",
            advice="flash attention is either on or off there: --pin flash_attn=on",
        )
    if value is FlashAttn.ON:
        yield ("-fa",)


def unsupported(flag: Flag, dialect: Dialect, tool: Tool) -> TargetError:
    """This llama.cpp lacks a flag: which build has it, and what goes without it."""
    where = f"{tool.value} b{dialect.build}"
    named = spellings(flag, tool)
    since = f" from b{flag.since} on" if flag.since and dialect.build < flag.since else ""
    expected = f"a llama.cpp that lists it{since}" if named else "another tool"
    found = f"{where}, which does not have it"
    return TargetError(flag.names[0], expected=expected, found=found, advice=f"without it: {flag.loss}")
