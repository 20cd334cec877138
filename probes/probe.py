"""What a probe is: a named question to a host with one of three outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from probes.host import Host

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """The question has an answer."""

    value: T
    note: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """Looked, and there is nothing of the kind; that is no failure."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Could not look, or what was there made no sense."""

    reason: str


Outcome = Found[T] | Absent | Failed


@dataclass(frozen=True, slots=True)
class Request:
    """What the user named.

    Args:
        model_path: local path of the model; None without one (or for an address on the web).
        llama: folder or binary of llama.cpp the user insists on.
        rpc: ``host:port`` of remote devices.
    """

    model_path: str | None = None
    llama: str | None = None
    rpc: tuple[str, ...] = ()


Seen = Mapping[str, Found[Any] | Absent | Failed]
"""Outcomes of the probes that ran earlier, by name."""


def value(seen: Seen, name: str) -> Any:
    """What an earlier probe found, or None."""
    outcome = seen.get(name)
    return outcome.value if isinstance(outcome, Found) else None


@dataclass(frozen=True, slots=True)
class Probe:
    """``read`` may raise anything; the driver turns that into ``Failed``."""

    name: str
    read: Callable[[Host, Request, Seen], Found[Any] | Absent | Failed]
