"""What every engine in a process of its own shares as a session: waiting, dying and ending."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self, TypeVar

from probes import engine_cause, sampling
from probes.child import Child
from probes.host import Host
from probes.session import Down, Stopped, Tick


class ChildSession(ABC):
    """A ``Session`` whose engine is a child of ours.

    Args:
        kills: processes that the system had ended for lack of memory before it was started.
    """

    def __init__(self, host: Host, process: Child, kills: int) -> None:
        self._host, self._process, self._kills = host, process, kills
        self._start = host.clock()
        self.loaded_s = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self, limit_s: float, tick: Tick) -> Down | Stopped | None:
        """None as soon as it is ready."""
        while True:
            found = self._poll()
            if isinstance(found, Down):
                return found
            if found:
                self.loaded_s = self._host.clock() - self._start
                return None
            reason = tick(None)
            if not reason and self._host.clock() - self._start > limit_s:
                reason = f"not ready after {limit_s:.0f} s"
            if reason:
                return Stopped(reason)

    @abstractmethod
    def _poll(self) -> Down | bool:
        """Whether it is ready; returns after a moment where it is not."""

    def alive(self) -> Down | None:
        """Why it has ended; None while it runs."""
        status = self._process.status
        if status is None:
            return None
        kills = sampling.oom_kills(self._host) - self._kills
        return Down(engine_cause.cause(status, self._process.lines(), oom_kills=kills))

    def close(self) -> None:
        self._process.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


Some = TypeVar("Some", bound=ChildSession)


def ready(session: Some, limit_s: float, tick: Tick) -> Some | Down | Stopped:
    """The session once it is ready; otherwise its engine has ended, and why."""
    try:
        problem = session.wait_ready(limit_s, tick)
    except BaseException:
        session.close()
        raise
    if problem is None:
        return session
    session.close()
    return problem
