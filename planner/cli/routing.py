"""``moeplan routing``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner import units
from planner.cli.guard import note, printable, product
from planner.cli.options import LLAMA
from planner.errors import OptionError

if TYPE_CHECKING:
    from planner.routing.capture import Capture

_WAYS = ("auto", "callback", "imatrix")


def routing(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A GGUF file, or any shard of a split one.")],
    text: Annotated[
        str | None, typer.Option(metavar="FILE", help="A text like those the model will see; default: a short sample.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to keep it; default: MODEL.routing.npz here."),
    ] = None,
    tokens: Annotated[int, typer.Option(min=64, max=1 << 20, metavar="N", help="Tokens of the text, at most.")] = 4096,
    answer_tokens: Annotated[
        int, typer.Option(min=0, max=1 << 14, metavar="N", help="Tokens the model then writes (callback only).")
    ] = 256,
    capture: Annotated[
        str,
        typer.Option(
            metavar="auto|callback|imatrix", help="Order and counts by a callback, or counts by llama-imatrix."
        ),
    ] = "auto",
    llama: Annotated[str | None, LLAMA] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr.")] = False,
) -> None:
    """Record which experts a model selects, and print the file's path.

    It runs the model on the CPU: through a callback in libllama, or the user's llama-imatrix. Show the result with
    `moeplan inspect MODEL --routing FILE`, plan with it by `--routing FILE`.
    """
    if capture not in _WAYS:
        raise OptionError("--capture", expected=" or ".join(_WAYS), found=repr(capture))
    from planner import pipeline
    from planner.files import write_file
    from planner.routing.capture import Way
    from planner.routing.session import CaptureRequest
    from planner.routing.stored import dump

    watcher = Bar(quiet=quiet)
    found, recording = pipeline.capture_routing(
        CaptureRequest(model, llama, text, Way(capture), tokens, answer_tokens, watcher)
    )
    path = output or f"{_stem(model)}.routing.npz"
    write_file(path, dump(recording), (*found.shards, text))
    product(path)
    if not quiet:
        note(f"next: moeplan inspect {found.path} --routing {path}")


def _stem(path: str) -> str:
    from pathlib import PurePath

    return PurePath(path).name.removesuffix(".gguf")


class Bar:
    """Progress of a capture on stderr: a bar on a terminal, else lines (first piece, quarters); none with ``-q``."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet, self._quarter = quiet, 0
        self._bar: Any = None
        self._task: Any = None

    def begin(self, capture: Capture) -> None:
        if not self._quiet:
            note(f"routing: through {capture.engine} on the CPU (Ctrl-C ends it, nothing is kept)")

    def counted(self, text: int, answer: int, least_s: float) -> None:
        if self._quiet:
            return
        what = f"{units.counted(text, 'token')} of text" + (f" and {units.count(answer)} of answer" if answer else "")
        note(f"routing: {what}" + (f", at least {units.duration(least_s)}" if least_s >= 1 else ""))
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn(printable("routing")), BarColumn(), TextColumn("{task.percentage:3.0f}%"))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True, highlight=False))
            self._task = self._bar.add_task("routing", total=None)
            self._bar.start()

    def step(self, done: int, of: int, left_s: float) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=of)
        elif not self._quiet and 4 * done // max(of, 1) >= self._quarter:
            self._quarter = 4 * done // max(of, 1) + 1
            left = f", about {units.duration(left_s)} left" if left_s >= 1 else ""
            note(f"routing: {done:,} of {of:,} tokens{left}")

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
