"""Answers of an engine that stay true while its files do not change, kept between runs.

A CUDA build needs a second to start. Memory figures are never kept.
"""

from __future__ import annotations

import json
import posixpath
from typing import Any, Final

from probes.host import Host

_FORMAT: Final = "1"
_LIBRARIES: Final = ("*llama*", "*ggml*")
"""The program may be a stub around its libraries, so their sizes and times count as well."""


def key(host: Host, path: str, *more: str) -> str | None:
    """A name for the state of the files around ``path``; None if there is no such file."""
    if host.stamp(path) is None:
        return None
    from hashlib import sha256

    folder = posixpath.dirname(path)
    files = sorted({path, *(f for pattern in _LIBRARIES for f in host.glob(f"{folder}/{pattern}"))})
    state = [_FORMAT, *more, *(f"{file} {host.stamp(file)}" for file in files)]
    return sha256("\n".join(state).encode("utf-8", "replace")).hexdigest()


def load(host: Host, name: str | None) -> dict[str, Any] | None:
    """A kept answer; None if there is none or it is damaged."""
    text = host.cached(name) if name else None
    try:
        data = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def store(host: Host, name: str | None, data: dict[str, Any]) -> None:
    if name:
        host.keep(name, json.dumps(data))
