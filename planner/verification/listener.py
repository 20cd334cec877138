"""Who is told what happens while a plan is verified."""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    def note(self, text: str) -> None:
        """What happens, in a line."""

    def hear(self, text: str) -> None:
        """A piece of the first answer."""

    def heard(self) -> None:
        """The first answer has ended."""
