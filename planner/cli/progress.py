"""What is being measured, on stderr: a spinner on a terminal, one line per probe elsewhere, nothing with ``-q``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from planner.cli.guard import note, printable

if TYPE_CHECKING:
    from planner.facts.outcome import ProbeReport


class Progress:
    """Told by the pipeline when a probe begins and ends.

    Args:
        quiet: say nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._status: Any = None

    def begin(self, name: str, what: str, purpose: str) -> None:
        if self._quiet:
            return
        line = f"measuring {what}: {purpose} (Ctrl-C goes on without)"
        if not sys.stderr.isatty():
            note(line)
            return
        from rich.console import Console
        from rich.text import Text

        self._status = Console(stderr=True, highlight=False).status(
            Text(printable(line), no_wrap=True, overflow="ellipsis"), refresh_per_second=4
        )
        self._status.start()

    def end(self, report: ProbeReport) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        if not self._quiet:
            note(f"{report.name}: {report.status}, {report.reason} ({report.duration_s:.1f} s in all)")
