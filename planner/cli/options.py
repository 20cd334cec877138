"""Options that planning commands share, and what they become: a workload with its limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from planner import units
from planner.errors import OptionError
from planner.facts.workload import Goal, Target, Workload

if TYPE_CHECKING:
    from emit.formats import Format
    from planner.pipeline import Measure

T = TypeVar("T")


LLAMA = typer.Option(
    metavar="PATH",
    help="llama.cpp folder or program; default: $MOEPLAN_LLAMA, then PATH, then the embedded engine.",
)
RPC = typer.Option(metavar="HOST:PORT,...", help="llama.cpp RPC servers to use as devices.")
ROUTING = typer.Option(metavar="FILE", help="Which experts the model uses: an imatrix GGUF, a route trace, or .npz.")


MOST_TOKENS = 1 << 30

FORMS = "text|json|sh|ps1|env|preset|llama-swap|compose|systemd|html: form of the plan; repeatable. Default: text."


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """One field per option; the annotation is what ``--help`` shows."""

    ctx: Annotated[
        int | None,
        typer.Option(
            "--ctx", min=1, max=MOST_TOKENS, metavar="N", help="Context in tokens; default: the planner chooses."
        ),
    ] = None
    parallel: Annotated[int, typer.Option(min=1, max=256, metavar="N", help="Requests served at once.")] = 1
    prompt_tokens: Annotated[
        int, typer.Option(min=1, max=MOST_TOKENS, metavar="N", help="Prompt length of a turn.")
    ] = 4096
    answer_tokens: Annotated[
        int, typer.Option(min=1, max=MOST_TOKENS, metavar="N", help="Answer length of a turn.")
    ] = 512
    goal: Annotated[Goal, typer.Option(help="What to make fast.")] = Goal.TURN
    kv: Annotated[str, typer.Option(metavar="auto|TYPE|K:V", help="KV cache types such as q8_0 or q8_0:q4_0.")] = "auto"
    headroom: Annotated[
        str | None, typer.Option(metavar="SIZE", help="VRAM to keep free per device; default 1GiB.")
    ] = None
    vram: Annotated[list[str] | None, typer.Option(metavar="[DEVICE=]SIZE", help="VRAM budget; repeatable.")] = None
    ram: Annotated[str | None, typer.Option(metavar="SIZE", help="RAM budget.")] = None
    pin: Annotated[
        list[str] | None,
        typer.Option(metavar="FLAG=VALUE", help="A value the planner may not change; repeatable."),
    ] = None
    machine: Annotated[str | None, typer.Option(metavar="FILE", help="A recorded machine; nothing is measured.")] = None
    llama: Annotated[str | None, LLAMA] = None
    target: Annotated[
        str,
        typer.Option(
            metavar="llama.cpp|bNNNNN|ik_llama.cpp|bigmoe|working-set", help="The engine or build to write flags for."
        ),
    ] = "llama.cpp"
    rpc: Annotated[str | None, RPC] = None
    routing: Annotated[str | None, ROUTING] = None
    no_oracle: Annotated[
        bool,
        typer.Option("--no-oracle", help="Never call the engine to confirm memory."),
    ] = False

    @property
    def inputs(self) -> tuple[str | None, ...]:
        """Files that are read, and so not to be overwritten."""
        return self.machine, self.routing

    def workload(self) -> Workload:
        """The workload and limits they describe.

        Raises:
            OptionError: a size, KV pair, pin or target that is none.
        """
        target, build = _parsed("--target", _target, self.target)
        return Workload(
            n_ctx=self.ctx,
            n_parallel=self.parallel,
            prompt_tokens=self.prompt_tokens,
            answer_tokens=self.answer_tokens,
            goal=self.goal,
            kv=_parsed("--kv", _kv, self.kv),
            headroom_bytes=_size("--headroom", self.headroom),
            vram_bytes=tuple(_parsed("--vram", _device_size, text) for text in self.vram or ()),
            ram_bytes=_size("--ram", self.ram),
            pins=tuple(_parsed("--pin", _pin, text) for text in self.pin or ()),
            target=target,
            target_build=build,
            rpc=servers(self.rpc),
        )


def seconds(value: float) -> float:
    """A time that was given: ``nan`` passes every comparison with a limit."""
    if value != value:
        raise typer.BadParameter("nan is no number of seconds")
    return value


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """How long, and what again."""

    budget: Annotated[
        float,
        typer.Option(
            min=0, max=3600, callback=seconds, metavar="SECONDS", help="What timed probes may take; 0 measures nothing."
        ),
    ] = 60.0
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure again what was measured before.")] = False
    probe_mem: Annotated[
        bool, typer.Option("--probe-mem", help="Find out how much RAM can really be taken, by taking it.")
    ] = False

    @property
    def asked(self) -> bool:
        """True if the user named something to measure."""
        return self.refresh or self.probe_mem

    def measure(self, *, quiet: bool) -> Measure:
        """What the pipeline takes, with progress on stderr unless ``quiet``."""
        from planner.cli.progress import Progress
        from planner.pipeline import Measure

        return Measure(Progress(quiet=quiet), self.budget, self.refresh, self.probe_mem)


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Which renderings go where."""

    format: Annotated[
        list[str] | None,
        typer.Option("--format", metavar="FORM", help=FORMS),
    ] = None
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="FILE", help="File for a --format, in order; - is stdout."),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False
    why: Annotated[bool, typer.Option("--why", help="Full evidence and the alternatives.")] = False
    no_color: Annotated[bool, typer.Option("--no-color", help="No colour on a terminal.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr.")] = False

    def targets(self) -> tuple[tuple[Format, str], ...]:
        """``(format, file)`` pairs, ``-`` for stdout.

        Raises:
            OptionError: an unknown format; fewer or more files than formats.
        """
        names = [*(self.format or ()), *(("json",) if self.json else ())] or ["text"]
        formats = [_parsed("--format", _format, name) for name in names]
        files = self.output or ["-"] * len(formats)
        if len(files) != len(formats):
            raise OptionError(
                "-o",
                expected=f"one per --format ({len(formats)}), in order",
                found=str(len(files)),
                advice="-o - is stdout",
            )
        twice = [name for n, name in enumerate(files) if name != "-" and name in files[:n]]
        if twice or "" in files:
            raise OptionError("-o", expected="a file of its own per format", found=repr(twice[0] if twice else ""))
        return tuple(zip(formats, files, strict=True))


def servers(text: str | None) -> tuple[str, ...]:
    """``--rpc`` taken apart. Raises OptionError for what is no HOST:PORT, which llama.cpp parts at the first colon."""
    found = tuple(part for part in (text or "").split(",") if part)
    for part in found:
        host, _, port = part.partition(":")
        if not (host and port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536):
            raise OptionError("--rpc", expected="HOST:PORT with a port of 1 to 65535", found=repr(part))
    return found


def _parsed(option: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise OptionError(option, found=str(error)) from error


def size_of(option: str, text: str) -> int:
    """A size on the command line as bytes. Raises OptionError."""
    return _parsed(option, units.parse_size, text)


def _size(option: str, text: str | None) -> int | None:
    return None if text is None else size_of(option, text)


def _kv(text: str) -> tuple[str, str] | None:
    key, colon, value = text.partition(":")
    if not key or (colon and not value):
        raise ValueError(f"expected auto, a type such as q8_0, or K:V, found {text!r}")
    return None if text == "auto" else (key, value or key)


def _format(text: str) -> Format:
    from emit.formats import Format

    if text not in set(Format):
        raise ValueError(f"expected one of {', '.join(Format)}, found {text!r}")
    return Format(text)


def _device_size(text: str) -> tuple[str, int]:
    device, _, amount = text.rpartition("=")
    return device, units.parse_size(amount)


def _pin(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not (name and value):
        raise ValueError(f"expected FLAG=VALUE such as n-cpu-moe=12, found {text!r}")
    return name, value


def _target(text: str) -> tuple[Target, int | None]:
    number = text[1:]
    if (
        text.startswith("b")
        and number.isascii()
        and number.isdecimal()
        and len(text) < 12
        and 0 < int(number) < 1 << 31
    ):
        return Target.LLAMA_CPP, int(number)
    if text not in set(Target):
        raise ValueError(f"expected {', '.join(Target)} or a build such as b11549, found {text[:40]!r}")
    return Target(text), None
