"""What a child process says: read while it runs, so that it never blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import IO, Final

Heard = Callable[[str], None]
"""Told what a command says on stdout while it runs, piece by piece, from another thread."""

MAX_OUTPUT: Final = 1 << 20


class Reader:
    """Drains one pipe so that the command never blocks; keeps the first ``MAX_OUTPUT`` bytes, and tells all."""

    def __init__(self, pipe: IO[bytes] | None, heard: Heard | None = None) -> None:
        self._pipe, self._heard = pipe, heard
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while self._pipe is not None and (chunk := self._pipe.read1(1 << 16)):  # type: ignore[attr-defined]
            self._kept += chunk[: MAX_OUTPUT - len(self._kept)]
            if self._heard is not None:
                self._heard(chunk.decode("utf-8", "replace"))

    def text(self) -> str:
        self._thread.join(timeout=1.0)
        return bytes(self._kept).decode("utf-8", "replace")
