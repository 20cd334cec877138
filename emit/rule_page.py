"""The manual of a rule: for ``explain`` and for the docs."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from emit import wording
from emit.decision_view import decisions
from emit.flag_spell import flag_of
from planner.plans.decision import Decision, RuleDoc


def rule_view(doc: RuleDoc, decided: tuple[Decision, ...] | None = None) -> RenderableType:
    """A rule's page; with a plan's decisions also what the rule decided there."""
    parts: list[RenderableType] = [
        Text(doc.title, style="bold"),
        Text(f"rule {doc.id}; decides {_settings(doc)}", style="dim"),
    ]
    for title, body in (("What", doc.what), ("Why", doc.why)):
        parts += [Text(f"\n{title}", style="bold"), Text(body)]
    parts += [Text("\nNumbers", style="bold"), Padding(_numbers(doc), (0, 0, 0, 2))]
    parts += [Text("\nAbstains", style="bold"), Text(doc.abstains)]
    if doc.references:
        parts += [Text("\nReferences", style="bold"), *(Text(f"- {line}") for line in doc.references)]
    if decided is not None:
        mine = tuple(item for item in decided if item.rule == doc.id)
        parts.append(Text("\nIn this plan", style="bold"))
        parts.append(decisions(mine) if mine else Text(f"It left the plan alone: {doc.abstains}"))
    return Group(*parts)


def markdown(doc: RuleDoc) -> str:
    """The same as a page of the docs."""
    lines = [f"# {doc.title}", "", f"Rule `{doc.id}`, decides {_settings(doc, '`')}.", "", "## What", "", doc.what]
    lines += ["", "## Why", "", doc.why, "", "## Numbers", "", "| figure | source |", "|---|---|"]
    lines += [f"| {_cell(figure)} | {_cell(source)} |" for figure, source in doc.numbers]
    lines += ["", "## When it abstains", "", doc.abstains]
    if doc.references:
        lines += ["", "## References", "", *(f"- {line}" for line in doc.references)]
    return "\n".join(lines) + "\n"


def _numbers(doc: RuleDoc) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", ratio=1)
    table.add_column(overflow="fold", ratio=1)
    for figure, source in doc.numbers:
        table.add_row(Text(wording.clean(figure)), Text(wording.clean(source), style="dim"))
    return table


def _settings(doc: RuleDoc, quote: str = "") -> str:
    words = [
        f"{quote}{name}{quote}" + (f" ({quote}{flag}{quote})" if (flag := flag_of(name)) else "")
        for name in doc.settings
    ]
    return ", ".join(words)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
