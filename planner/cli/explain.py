"""``moeplan explain``."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.guard import product
from planner.cli.show import as_text


def explain(
    topic: Annotated[
        str, typer.Argument(metavar="[RULE|FLAG]", help="A rule or a llama.cpp flag; none lists the rules.")
    ] = "",
    plan: Annotated[
        str | None, typer.Option(metavar="PLAN.json", help="A plan written with --json: what it chose, and why.")
    ] = None,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colour on a terminal.")] = False,
) -> None:
    """Print the manual of a rule, or why a plan chose a flag."""
    from planner import pipeline

    docs = pipeline.manuals(topic)
    if not topic and plan is None:
        width = max(len(doc.id) for doc in docs)
        product("".join(f"{doc.id:{width}}  {doc.title}\n" for doc in docs))
        return
    from rich.console import Group

    from emit.rule_page import rule_view

    decided = None if plan is None else pipeline.decisions_in(plan)
    product(as_text(Group(*(rule_view(doc, decided) for doc in docs)), terminal=True, no_color=no_color))
