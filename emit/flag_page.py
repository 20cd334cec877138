"""The page of a flag: how it is spelled, from which build on, why it is there; for ``explain``."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from emit import wording
from emit.flag_spell import normal
from emit.flag_table import FLAGS, PRESETS, READ_ONLY, Flag, Kind, spellings
from planner.plans.settings import Tool

_ROWS: Final = (*FLAGS, *READ_ONLY, PRESETS)


def flag_named(topic: str) -> Flag | None:
    """The row of a flag in any spelling, or of a setting; None where there is none."""
    return next((row for row in _ROWS if topic == row.setting or _is(row, normal(topic))), None)


def flag_names() -> tuple[str, ...]:
    """Every long spelling that ``explain`` takes."""
    return tuple(name for row in _ROWS for name in (*row.names, *row.negative) if name.startswith("--"))


def flag_view(flag: Flag, argv: tuple[str, ...] | None = None) -> RenderableType:
    """The page. Args: argv: a plan's command, to show what it says there."""
    names = flag.names or flag.bench
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts(flag):
        table.add_row(Text(name), Text(value))
    parts: list[RenderableType] = [Text(f"{names[0]}: {flag.reason or _READ}", style="bold")]
    parts += [Text("no rule decides it", style="dim"), table]
    if argv is not None:
        said = _said(flag, argv)
        parts += [
            Text("\nIn this plan", style="bold"),
            Text(wording.clean(said) if said else "It is not in the command."),
        ]
    return Group(*parts)


_READ: Final = "check and --pin read it; newer flags say the same"


def _facts(flag: Flag) -> list[tuple[str, str]]:
    facts = [("spelled", " ".join(flag.names))] if flag.names else []
    if flag.negative:
        facts.append(("says no", " ".join(flag.negative)))
    if flag.bench:
        facts.append(("llama-bench", " ".join(flag.bench) + (" (says no)" if flag.bench_negative else "")))
    if flag.env:
        facts.append(("variable", flag.env))
    if flag.choices:
        facts.append(("values", " ".join(flag.choices)))
    if flag.since:
        facts.append(("since", f"b{flag.since}"))
    if flag.until:
        facts.append(("until", f"b{flag.until - 1}; later builds refuse it"))
    facts.append(("tools", " ".join(tool.value for tool in Tool if spellings(flag, tool))))
    if flag.loss:
        facts.append(("without it", flag.loss))
    return facts


def _is(row: Flag, name: str) -> bool:
    return name in (*row.names, *row.negative, *row.bench)


def _said(flag: Flag, argv: tuple[str, ...]) -> str:
    """The flag's words in a command; empty where it is not there."""
    words = iter(argv[1:])
    for token in words:
        row = flag_named(token) if token.startswith("-") else None
        value = (next(words, ""),) if row is not None and row.kind is not Kind.SWITCH else ()
        if row is flag:
            return " ".join((token, *value))
    return ""
