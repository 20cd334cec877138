"""A view on a terminal, in a pipe or in a file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from planner.errors import OptionError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from emit.formats import Format
    from planner.plans.plan import Plan

PLAIN_WIDTH = 100
"""Columns where nothing tells; a command line is never wrapped whatever the width."""


def as_text(view: RenderableType, *, terminal: bool, no_color: bool = False) -> str:
    """A Rich view as text, as wide as the terminal; with ANSI styles only where one is asked for.

    Args:
        terminal: for stdout; a file is ``PLAIN_WIDTH`` wide, and so is a pipe where ``$COLUMNS`` says nothing.
        no_color: no escapes at all.
    """
    import io
    import shutil

    from rich.console import Console

    styled = terminal and sys.stdout.isatty() and not no_color
    fallback = PLAIN_WIDTH, 0
    columns = shutil.get_terminal_size(fallback).columns if terminal else PLAIN_WIDTH
    console = Console(
        file=io.StringIO(),
        force_terminal=styled,
        width=columns,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as capture:
        console.print(view, crop=False)
    return "".join(line.rstrip(" ") + "\n" for line in capture.get().splitlines())


def as_form(plan: Plan, form: Format) -> str:
    """A plan in a form that is not text; where another program reads it, with whole paths.

    Raises as ``emit.formats.render`` does.
    """
    from emit.formats import ELSEWHERE, Format, render

    if form not in ELSEWHERE or "://" in plan.model.path:
        return render(plan, form)
    path = _behind_links(plan.model.shards) if form is Format.COMPOSE else Path(plan.model.path).absolute()
    engine = plan.machine.engine
    if engine is not None and engine.server is not None and Path(engine.server).exists():
        engine = replace(engine, server=str(Path(engine.server).absolute()))
    machine = replace(plan.machine, engine=engine)
    return render(replace(plan, model=replace(plan.model, path=str(path)), machine=machine), form)


def _behind_links(shards: tuple[str, ...]) -> Path:
    """The first file itself: a container sees one folder and no links out of it.

    Raises:
        OptionError: shards that are links into several folders, or to other names.
    """
    files = [Path(shard).resolve() for shard in shards]
    moved = any(file.name != Path(shard).name for file, shard in zip(files, shards, strict=True))
    if len({file.parent for file in files}) > 1 or (moved and len(files) > 1):
        raise OptionError("--format compose", expected="all shards as files in one folder", found="links into others")
    return files[0]
