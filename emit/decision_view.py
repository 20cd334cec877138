"""Decisions with their whole evidence."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from emit import wording
from emit.flag_spell import flag_of
from planner.plans.compare import fate
from planner.plans.decision import Decision


def decisions(items: tuple[Decision, ...]) -> RenderableType:
    """One block per decision."""
    parts: list[RenderableType] = []
    for item in items:
        parts += [Text(), decision(item)] if parts else [decision(item)]
    return Group(*parts)


def decision(item: Decision) -> RenderableType:
    """Headline, confidence, every number it rests on, every road not taken."""
    name = flag_of(item.setting) or item.setting
    title = Text(f"{wording.clean(name)} {wording.decided(item)}", style="bold")
    title.append(f"  rule {wording.clean(item.rule)}, {item.confidence.value}", style="dim")
    title.append("" if item.lossless else ", lossy", style="yellow")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for evidence in item.because:
        shown = Text(wording.evidence(evidence)).append(f" ({evidence.source.value})", style="dim")
        table.add_row(Text("because"), Text(wording.clean(evidence.fact)), shown)
    for other in item.alternatives:
        detail = f"{fate(other)}: {wording.clean(other.detail)}" if other.detail else fate(other)
        table.add_row(Text("not"), Text(wording.scalar(other.value)), Text(detail))
    return Group(title, Text(wording.clean(item.headline)), table)
