"""Which experts a model selects, in order: libllama's own scheduler tells, in a child process.

The library is that of the user's llama.cpp folder, or of llama-cpp-python. A person can run the same with
``python probes/script_routing.py LIBLLAMA JOB``.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable
from dataclasses import asdict, dataclass

from planner.facts.machine import Os
from probes import llama_embedded
from probes.host import Host
from probes.llama_build import complaint
from probes.llama_find import Place

Step = Callable[[int, int], None]
"""Told ``(tokens done, tokens in all)``."""


@dataclass(frozen=True, slots=True)
class Job:
    """One capture.

    Args:
        text: a file; it goes through in at most ``chunks`` pieces of ``chunk`` tokens.
        answer: tokens the model writes by itself after the last piece.
        out: where the selections go.
    """

    model: str
    text: str
    chunk: int
    chunks: int
    answer: int
    threads: int
    out: str
    seed: int = 1


def library(host: Host, place: Place) -> str | None:
    """Path of the engine's libllama, beside its programs or in the ``lib`` folder next to theirs."""
    if place.server is None:
        return llama_embedded.library(host, place.package or "")
    server = host.real_path(place.server)
    folder = posixpath.dirname(server.replace("\\", "/") if host.os is Os.WINDOWS else server)
    names = ("libllama.so", "libllama.dylib", "llama.dll")
    paths = [posixpath.join(folder, part, name) for part in ("", "../lib", "../lib64") for name in names]
    return next((host.real_path(path) for path in paths if host.is_file(path)), None)


def capture(host: Host, path: str, job: Job, step: Step, timeout_s: float) -> str:
    """Run the job with the libllama at ``path``; why it failed, or nothing."""
    rest = ""

    def heard(text: str) -> None:
        nonlocal rest
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            said = _progress(line)
            if said is not None:
                step(*said)

    run = host.run_script("script_routing.py", (path, json.dumps(asdict(job))), timeout_s, heard)
    return "" if run.returncode == 0 else complaint(run)


def _progress(line: str) -> tuple[int, int] | None:
    """``(done, of)`` of a line that tells it."""
    try:
        said = json.loads(line)
        done, whole = said["done"], said["of"]
    except (ValueError, KeyError, TypeError):
        return None
    return (done, whole) if isinstance(done, int) and isinstance(whole, int) else None
