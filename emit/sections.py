"""Parts of a page on a terminal: a heading with its body, lines with a dash, cautions."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from emit import wording
from planner.plans.plan import Caution


def section(title: str, body: RenderableType) -> RenderableType:
    """A heading, and its body two columns in."""
    return Group(Text(title, style="bold"), Padding(body, (0, 0, 1, 2)))


def bullets(lines: Iterable[Text]) -> Table:
    """Lines with a dash, wrapped under themselves."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row(Text("-"), line)
    return table


def cautions(items: tuple[Caution, ...]) -> list[RenderableType]:
    """Cautions with their codes, as ``moeplan explain`` takes them; nothing without any."""
    lines = [Text(wording.clean(item.message)).append(f" [{item.code}]", style="dim") for item in items]
    return [section("Cautions", bullets(lines))] if lines else []
