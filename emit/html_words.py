"""Words, tables and lists as HTML; everything that goes in is text and comes out escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

from emit import wording


def text(words: str) -> str:
    """Text for an element or a quoted attribute; what could steer a reader is written by number."""
    return html.escape(wording.clean(words))


def table(head: Iterable[str], rows: Iterable[Iterable[str]], kind: str = "words") -> str:
    """A table. Args: kind: its class; ``numbers`` aligns every column but the first to the right."""
    lines = [_row(head, "th"), *(_row(row, "td") for row in rows)]
    return f'<table class="{kind}">\n' + "\n".join(lines) + "\n</table>"


def _row(cells: Iterable[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{text(cell)}</{tag}>' for cell in cells)}</tr>"


def items(lines: Iterable[str]) -> str:
    """A list."""
    return "<ul>\n" + "\n".join(f"<li>{text(line)}</li>" for line in lines) + "\n</ul>"


def code(lines: Iterable[str]) -> str:
    """Lines that keep their breaks and blanks."""
    return f"<pre><code>{chr(10).join(map(text, lines))}</code></pre>"
