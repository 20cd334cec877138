"""A view on a terminal, in a pipe or in a file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

PLAIN_WIDTH = 100
"""Columns where there is no terminal; a command line is never wrapped whatever the width."""


def as_text(view: RenderableType, *, terminal: bool, no_color: bool = False) -> str:
    """A Rich view as text: with ANSI styles only where ``terminal`` is asked for and stdout is one."""
    import io

    from rich.console import Console

    styled = terminal and sys.stdout.isatty()
    console = Console(
        file=io.StringIO(),
        force_terminal=styled,
        width=None if styled else PLAIN_WIDTH,
        no_color=no_color or None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as capture:
        console.print(view, crop=False)
    return "".join(line.rstrip(" ") + "\n" for line in capture.get().splitlines())
