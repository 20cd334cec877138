"""Why an engine ended: its status and last lines → the likely cause. Texts of b11312 to b11549."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from probes.text import clean

SHOWN: Final = 4
"""Lines of the log that go with a cause."""


class Kind(StrEnum):
    MEMORY = "memory"
    FLAG = "flag"
    PORT = "port"
    FILE = "file"
    KILLED = "killed"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Cause:
    """Args:
    text: one sentence.
    lines: the last lines of the log that mean something, made safe to print.
    """

    kind: Kind
    text: str
    lines: tuple[str, ...] = ()


_FROM_OUTSIDE: Final = tuple(
    -getattr(signal, name) for name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)
_BUS: Final = -getattr(signal, "SIGBUS", 0) or None
_PINNED: Final = "page-locked memory could not be taken ({})"
_UNREADABLE: Final = r"invalid magic|failed to open GGUF|failed to read .*tensor|model is corrupted"
_SIGNS: Final = (
    (Kind.FLAG, r"invalid argument: (\S+)", "this build does not know {}"),
    (Kind.FLAG, r"error while handling argument \"([^\"]*)\"", "this build does not take the value of {}"),
    (Kind.PORT, r"couldn't bind (?:HTTP server )?socket.*port: (\d+)", "port {} is taken"),
    (Kind.MEMORY, r"cudaMalloc failed: out of memory", "GPU memory ran out"),
    (Kind.MEMORY, r"(?:unable|failed) to allocate (\S+_Host|pinned)\b.*buffer", _PINNED),
    (Kind.MEMORY, r"failed to allocate .*?(\d[\d.]* MiB) of pinned memory", _PINNED),
    (Kind.MEMORY, r"(?:unable|failed) to allocate (\S+) buffer", "memory for a buffer of {} could not be taken"),
    (Kind.MEMORY, r"ErrorOutOfDeviceMemory|out of memory|bad_alloc|Cannot allocate memory", "memory ran out"),
    (Kind.MEMORY, r"GGML_ASSERT\(ctx->mem_buffer != NULL\)|insufficient memory", "memory ran out"),
    (Kind.MEMORY, r"Resource temporarily unavailable", "a thread could not start: memory or processes are limited"),
    (Kind.MEMORY, r"failed to (?:m?lock|fix) \d+-byte buffer", "memory could not be locked"),
    (Kind.FILE, r"data is not within the file bounds", "the model file is cut short or was replaced"),
    (Kind.FILE, _UNREADABLE, "the model file cannot be read"),
    (Kind.FILE, r"unknown model architecture: '([^']*)'", "this build does not know the architecture {}"),
    (Kind.OTHER, r"GGML_ASSERT\((.*?)\) failed", "an assertion of llama.cpp failed: {}"),
    (Kind.FILE, r"error loading model: (.*)", "the model did not load: {}"),
)
_PREFIX: Final = re.compile(r"^\d[\d.]* [A-Z] +(?:\w+ +)?")
_ERROR: Final = re.compile(r"^\d[\d.]* [EW] |error|fail|unable|assert|terminate|abort|what\(\)", re.IGNORECASE)
_DULL: Final = re.compile(r"cleaning up before exit|no API key is set|exiting due to")


def cause(status: int | None, lines: tuple[str, ...], *, oom_kills: int = 0) -> Cause:
    """Why it ended.

    Args:
        status: exit status, negative for a signal; None if it still runs.
        oom_kills: how many processes the kernel killed for memory meanwhile.
    """
    shown = meaningful(lines)
    text = "\n".join(lines[-400:])
    if status in _FROM_OUTSIDE:
        if oom_kills and status == _FROM_OUTSIDE[0]:
            return Cause(Kind.MEMORY, "the kernel killed it because memory ran out", shown)
        return Cause(Kind.KILLED, f"it was ended from outside by {_name(-(status or 0))}", shown)
    if status == _BUS:
        return Cause(Kind.FILE, "the mapped model file was cut short or replaced while it was read (SIGBUS)", shown)
    for kind, pattern, words in _SIGNS:
        if found := re.search(pattern, text):
            return Cause(kind, words.format(clean(found[1], 80)) if found.groups() else words, shown)
    if status is not None and status < 0:
        return Cause(Kind.OTHER, f"it crashed ({_name(-status)})", shown)
    if status is None:
        return Cause(Kind.OTHER, "it does not answer", shown)
    return Cause(Kind.OTHER, f"it ended with status {status}", shown)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def meaningful(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The last lines that speak of an error, else the last ones at all."""
    spoken = [line for line in lines[-400:] if line.strip() and not _DULL.search(line)]
    errors = [line for line in spoken if _ERROR.search(line)]
    return tuple(clean(_PREFIX.sub("", line)) for line in (errors or spoken)[-SHOWN:])
