"""A command while it runs, and what it says: drained by a thread, so that it never blocks."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Final, Protocol

Heard = Callable[[str], None]
"""Told what a command says on stdout while it runs, piece by piece, from another thread."""

MAX_OUTPUT: Final = 1 << 20
MAX_LINE: Final = 1 << 14
HEAD_LINES: Final = 4000
"""``-lv 4`` says some 200 lines while a model loads, and more with many shards."""
TAIL_LINES: Final = 200


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """A command that ended.

    Args:
        returncode: exit status, negative for a signal; None if it did not start or ran out of time.
        problem: why ``returncode`` is None, or empty.
    """

    returncode: int | None
    stdout: str = ""
    stderr: str = ""
    problem: str = ""


class Started(Protocol):
    """A command that runs on; its output is one pipe, its input another that is never written to."""

    @property
    def pid(self) -> int: ...

    @property
    def stdin(self) -> IO[bytes] | None: ...

    @property
    def stdout(self) -> IO[bytes] | None: ...

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""

    def terminate(self) -> None:
        """Ask it to end."""

    def end(self) -> int:
        """End it and all it started; its exit status."""


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


class Lines:
    """Keeps the first ``HEAD_LINES`` and the last ``TAIL_LINES`` lines of a pipe that may talk for days.

    The pipe is read below Python's buffer, whose lock a blocked read would keep: what a program started and left
    behind may hold the pipe open for ever, and ``close`` must not wait for that.

    Args:
        hear: is told every line as it comes, in another thread.
    """

    def __init__(self, pipe: IO[bytes], hear: Callable[[str], None] | None = None) -> None:
        self._pipe, self._hear = pipe, hear
        self._head: list[str] = []
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._closed = False
        self._ended = threading.Event()  # a thread whose join was interrupted is not alive to CPython 3.11
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._drain()
        finally:
            self._ended.set()

    def _drain(self) -> None:
        descriptor, rest = self._pipe.fileno(), b""
        while not self._closed and (chunk := os.read(descriptor, 1 << 16)):
            *whole, rest = (rest + chunk).split(b"\n")
            for raw in whole:
                self._keep(raw)
            while len(rest) >= MAX_LINE:
                self._keep(rest[:MAX_LINE])
                rest = rest[MAX_LINE:]
        if rest and not self._closed:
            self._keep(rest)

    def _keep(self, raw: bytes) -> None:
        line = raw[:MAX_LINE].decode("utf-8", "replace").rstrip("\r")
        if self._hear is not None:
            self._hear(line)
        if len(self._head) < HEAD_LINES:
            self._head.append(line)
        else:
            self._tail.append(line)

    def all(self) -> tuple[str, ...]:
        """Every line that was kept, in order."""
        return (*tuple(self._head), *tuple(self._tail))

    def finish(self, seconds: float) -> None:
        """Wait until the writer has closed the pipe, for so long at most."""
        self._ended.wait(seconds)

    def close(self, seconds: float) -> None:
        """Stop reading, after what still comes within ``seconds``. A pipe that somebody holds open is left to them."""
        self.finish(seconds)
        self._closed = True
        if self._ended.is_set():
            with suppress(OSError):
                self._pipe.close()
