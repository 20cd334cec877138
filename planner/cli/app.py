"""The ``moeplan`` command: which commands there are. Everything heavy is imported by the command that needs it."""

from __future__ import annotations

import gc
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from planner import __version__
from planner.cli.command import Command
from planner.cli.demo import demo
from planner.cli.expand import expanded
from planner.cli.explain import explain
from planner.cli.guard import guarded, lost, note, printable, there
from planner.cli.look import inspect, probe
from planner.cli.planning import check, plan
from planner.cli.routing import routing
from planner.cli.verify import run, verify
from planner.errors import Ended
from planner.signals import raise_ended

HELP = """How to start llama.cpp for one mixture-of-experts GGUF on one machine, why, and whether it will fit.

\b
moeplan --auto MODEL [OPTIONS]   measure machine and model, decide, print flags with reasons
moeplan --fit MODEL [OPTIONS]    the same without timed probes

MODEL is a GGUF file, any shard of a split one, or an https:// URL. The options of both are those of
`moeplan plan --help`.
"""

EPILOG = "Exit codes: 0 done, 1 refused, 2 usage, 3 could not read or measure."


class _Group(TyperGroup):
    """Takes ``moeplan --auto MODEL`` for ``moeplan plan --auto MODEL``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else "--help"
        if first.startswith("-") and first not in ("-h", "--help", "--version"):
            args = ["plan", *args]
        elif first.startswith("https://") or first.lower().endswith(".gguf"):
            ctx.fail(f"expected a command, found a model. Try: moeplan --auto {printable(first)}")
        return super().parse_args(ctx, args or ["--help"])


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"moeplan {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="moeplan",
    cls=_Group,
    help=HELP,
    epilog=EPILOG,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for _command in (plan, run, verify, check, inspect, probe, routing, demo):
    app.command(cls=Command)(guarded(expanded(_command)))
# a topic may itself begin with a dash
app.command(cls=Command, context_settings={"ignore_unknown_options": True})(guarded(expanded(explain)))


def main() -> None:
    """Entry point of the console script."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # none is ours; looking for them costs 15 ms
    sys.stdout, sys.stderr = there(sys.stdout, "r"), there(sys.stderr, "w")
    for stream in (sys.stdout, sys.stderr):
        _never_fail_to_encode(stream)
    raise_ended()
    try:
        code = _answer()
        gc.freeze()  # what is left goes with the process: looking for cycles in it at the exit costs 10 ms
        sys.exit(code)
    except (KeyboardInterrupt, Ended):
        sys.exit(130)
    except OSError as error:
        sys.exit(lost(error))


def _answer() -> int:
    """Run the command that was asked for; its exit code. What a usage error repeats is made printable."""
    import io

    usage_error: Any = typer.BadParameter.__bases__[0]
    try:
        code = app(prog_name="moeplan", standalone_mode=False)
    except usage_error as error:
        text = io.StringIO()
        error.show(file=text)
        note(text.getvalue().rstrip("\n"))
        code = error.exit_code
    except typer.Abort:
        code = 130
    return code if isinstance(code, int) else 0


def _never_fail_to_encode(stream: object) -> None:
    """A path that is no UTF-8 goes out as it came in; a narrow code page gets escapes."""
    import io

    if isinstance(stream, io.TextIOWrapper):
        wide = stream.encoding.lower().replace("-", "") == "utf8"
        stream.reconfigure(errors="surrogateescape" if wide else "backslashreplace")
