"""A command that dies with us, even if we are killed outright. ``Host.run`` cannot see to that."""

from __future__ import annotations

from planner.facts.machine import Os
from probes.host import Host

_SCRIPT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or os._exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)
"""``PR_SET_PDEATHSIG`` (1) survives execve: prctl(2). Costs 20 ms."""


def tied(host: Host, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command behind a program that asks Linux to kill it when its parent dies; as it is elsewhere."""
    if host.os is not Os.LINUX:
        return argv
    import os

    return (host.python, "-I", "-S", "-c", _SCRIPT, str(os.getpid()), *argv)
