"""TCP ports of this computer."""

from __future__ import annotations

from typing import Final

LOOPBACK: Final = "127.0.0.1"


def free_port() -> int:
    """A port that nobody listens on now; another program may still take it before we do."""
    import socket

    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def is_taken(port: int) -> bool:
    """Whether someone listens there."""
    import socket

    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0
