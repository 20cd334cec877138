"""``moeplan explain``."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.guard import product
from planner.cli.show import as_text


def explain(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="[RULE|FLAG|CODE]",
            help="A rule, a llama.cpp flag, the code of a caution or a verdict; none lists the rules.",
        ),
    ] = "",
    plan: Annotated[
        str | None, typer.Option(metavar="PLAN.json", help="A plan written with --json: what it chose, and why.")
    ] = None,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colour on a terminal.")] = False,
) -> None:
    """Print the manual of a rule, caution or verdict, or why a plan chose a flag."""
    from planner import pipeline

    docs, flag, caution = pipeline.manuals(topic)
    if not topic and plan is None:
        width = max(len(doc.id) for doc in docs)
        product("".join(f"{doc.id:{width}}  {doc.title}\n" for doc in docs))
        return
    from rich.console import Group
    from rich.text import Text

    from emit.caution_table import page
    from emit.flag_page import flag_view
    from emit.rule_page import rule_view

    saved = None if plan is None else pipeline.saved_plan(plan)
    views = [rule_view(doc, saved.decisions if saved else None) for doc in docs]
    views += [flag_view(flag, saved.argv if saved else None)] if flag is not None else []
    views += [Text(page(caution))] if caution is not None else []
    product(as_text(Group(*views), terminal=True, no_color=no_color))
