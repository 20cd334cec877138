"""SIGTERM and SIGHUP end the program as an exception does, so that everything that cleans up gets to run.

A signal that was ignored when the program began (``nohup``, a background job of a shell) stays ignored.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from planner.errors import Ended

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def raise_ended() -> tuple[int, ...]:
    """From now on a signal that would end the process at once raises ``Ended``. Main thread only.

    Returns:
        those that are raised now and were not before.
    """
    changed = tuple(number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL)
    for number in changed:
        signal.signal(number, _raise)
    return changed


@contextmanager
def ended_raised() -> Iterator[None]:
    """The same for the time of the block."""
    changed = raise_ended()
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def _raise(number: int, _frame: FrameType | None) -> None:
    raise Ended
