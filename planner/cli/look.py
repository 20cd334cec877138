"""``moeplan inspect`` and ``moeplan probe``: what is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.guard import note, product
from planner.cli.options import LLAMA, ROUTING, RPC, MeasureOptions, servers, size_of
from planner.cli.show import as_text
from planner.errors import OptionError
from planner.files import write_file

if TYPE_CHECKING:
    from planner.facts.model import Model
    from planner.facts.routing import PoolSet

_JSON = typer.Option("--json", help="As JSON.")
_NO_COLOR = typer.Option("--no-color", help="No colour on a terminal.")


def inspect(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A GGUF file, any shard of a split one, or an https:// URL.")
    ],
    routing: Annotated[str | None, ROUTING] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="The curves as SVG; a FILE.csv: the set of --pool."),
    ] = None,
    pool: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What a pool of this size holds and hits, with --routing.")
    ] = None,
    json: Annotated[bool, _JSON] = False,
    no_color: Annotated[bool, _NO_COLOR] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr.")] = False,
) -> None:
    """Show what a GGUF holds.

    Bytes by role and type, experts, attention kinds, KV bytes per token; with --routing, which experts are used.
    """
    from planner import pipeline

    for option, value in (("-o", output), ("--pool", pool)):
        if value is not None and routing is None:
            raise OptionError(option, expected="--routing FILE with it", found="no recording")
    found = pipeline.inspect(model)
    if routing is not None:
        found = pipeline.routed(found, routing, every_policy=True)
    chosen = None if pool is None else pipeline.pool_set(found, size_of("--pool", pool))
    if output is not None:
        for path, text in _files(found, chosen, output):
            write_file(path, text, (*found.shards, routing))
            if not quiet:
                note(f"written to {path}")
    if json:
        from emit.json_v1 import model_json

        product(model_json(found))
        return
    from emit.model_view import model_view

    product(as_text(model_view(found), terminal=True, no_color=no_color))
    if chosen is not None:
        from emit.routing_view import pool_view

        product(as_text(pool_view(found, chosen), terminal=True, no_color=no_color))


def _files(model: Model, chosen: PoolSet | None, path: str) -> Iterator[tuple[str, str]]:
    """Paths and contents: the curves, or for a ``.csv`` the set with its sidecar. Raises OptionError."""
    if not path.lower().endswith(".csv"):
        from emit.routing_svg import routing_svg

        yield path, routing_svg(model)
        return
    from emit import working_set

    if chosen is None:
        raise OptionError("-o FILE.csv", expected="--pool SIZE with it", found="no set of experts")
    working_set.check(model)
    yield path, working_set.plan_csv(chosen)
    yield f"{path[:-4]}.json", working_set.sidecar(model, chosen, PurePath(path).name)


def probe(
    measuring: MeasureOptions,
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="A GGUF on the disk to measure.", show_default=False)
    ] = None,
    record: Annotated[str | None, typer.Option(metavar="FILE", help="Write the machine here, for --machine.")] = None,
    llama: Annotated[str | None, LLAMA] = None,
    rpc: Annotated[str | None, RPC] = None,
    json: Annotated[bool, _JSON] = False,
    no_color: Annotated[bool, _NO_COLOR] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr.")] = False,
) -> None:
    """Look at this machine, and measure it.

    Memory, CPU, GPUs, the disk under MODEL, llama.cpp. What was measured before is not measured again.
    """
    from planner import pipeline

    machine = pipeline.probe(model, llama, servers(rpc), measuring.measure(quiet=quiet))
    text = pipeline.machine_json(machine) if json or record else ""
    if record:
        write_file(record, text, (model,))
        if not quiet:
            note(f"machine: written to {record}")
    if json:
        product(text)
        return
    from emit.machine_view import machine_view

    product(as_text(machine_view(machine), terminal=True, no_color=no_color))
