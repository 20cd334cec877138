"""``moeplan inspect`` and ``moeplan probe``: what is there."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.guard import note, product
from planner.cli.options import LLAMA, ROUTING, RPC, MeasureOptions, servers
from planner.cli.show import as_text
from planner.errors import OptionError

_JSON = typer.Option("--json", help="As JSON.")
_NO_COLOR = typer.Option("--no-color", help="No colour on a terminal.")


def inspect(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A GGUF file, any shard of a split one, or an https:// URL.")
    ],
    routing: Annotated[str | None, ROUTING] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the curves of --routing here, as SVG.")
    ] = None,
    json: Annotated[bool, _JSON] = False,
    no_color: Annotated[bool, _NO_COLOR] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr.")] = False,
) -> None:
    """Show what a GGUF holds.

    Bytes by role and type, experts, attention kinds, KV bytes per token; with --routing, which experts are used.
    """
    from planner import pipeline

    if output is not None and routing is None:
        raise OptionError("-o", expected="--routing FILE with it", found="no curves to draw")
    found = pipeline.inspect(model)
    if routing is not None:
        found = pipeline.routed(found, routing, every_policy=True)
    if output is not None:
        from emit.routing_svg import routing_svg
        from planner.files import write_file

        write_file(output, routing_svg(found), (*found.shards, routing))
        if not quiet:
            note(f"svg: written to {output}")
    if json:
        from emit.json_v1 import model_json

        product(model_json(found))
        return
    from emit.model_view import model_view

    product(as_text(model_view(found), terminal=True, no_color=no_color))


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
    from planner.files import write_file

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
