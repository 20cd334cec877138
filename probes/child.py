"""A program that runs on while we watch it, and that ends whenever we end.

We end it on every way out. If we are killed outright, a guard process does, which waits for our end of a pipe to
close, and ends the program's whole group: a ``llama-server`` may be a script that starts the real one. On Linux the
system ends the program itself even if the guard is killed, too (``PR_SET_PDEATHSIG``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from probes.commands import Lines, Started
from probes.host import Host
from probes.tied import tied

GRACE_S: Final = 5.0
"""What a program gets to end by itself; llama-server takes 20 ms, and frees pinned memory meanwhile."""
_STEP_S: Final = 0.02
_GUARD: Final = """
import os, signal, sys
while os.read(0, 1):
    pass
try:
    if sys.platform == "win32":
        os.kill(int(sys.argv[1]), signal.SIGTERM)
    else:
        os.killpg(int(sys.argv[1]), signal.SIGKILL)
except OSError:
    pass
"""


class Child:
    """A started program. Use it as a context, from the main thread: Linux ties its life to the starting thread."""

    def __init__(
        self, host: Host, process: Started, guard: Started | None, hear: Callable[[str], None] | None = None
    ) -> None:
        assert process.stdout is not None
        self._host, self._process, self._guard = host, process, guard
        self._lines = Lines(process.stdout, hear)
        self._status: int | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        if self._status is None:
            self._status = self._process.poll()
        return self._status

    def lines(self) -> tuple[str, ...]:
        """What it said so far, standard error included."""
        if self.status is not None:
            self._lines.finish(1.0)
        return self._lines.all()

    def say(self, line: str) -> bool:
        """Write one line to its standard input; False if it no longer listens."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def end(self) -> None:
        """Ask it to end, then make it."""
        try:
            if self.status is None:
                self._process.terminate()
                self._wait(GRACE_S)
        finally:
            status = self._process.end()
            self._status = status if self._status is None else self._status
            if self._guard is not None:
                self._guard.end()
                self._guard = None
            if self._process.stdin is not None:
                with suppress(OSError):
                    self._process.stdin.close()
            self._lines.close(1.0)

    def _wait(self, seconds: float) -> None:
        from time import sleep

        until = self._host.clock() + seconds
        while self.status is None and self._host.clock() < until:
            sleep(_STEP_S)


def start(
    host: Host,
    argv: tuple[str, ...],
    env: Mapping[str, str] | None = None,
    hear: Callable[[str], None] | None = None,
) -> Child | str:
    """Start a program; or why it did not start. Args: hear: is told every line of its output."""
    process = host.start(tied(host, argv), env)
    if isinstance(process, str):
        return process
    guard = host.start((host.python, "-I", "-S", "-c", _GUARD, str(process.pid)))
    return Child(host, process, None if isinstance(guard, str) else guard, hear)
