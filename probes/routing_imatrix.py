"""Which experts a model selects, counted: the user's own ``llama-imatrix`` beside llama-server.

A person gets the same with ``llama-imatrix -m MODEL -f TEXT -o OUT.gguf -c 512 -b 512 -ub 512 -ngl 0``.
"""

from __future__ import annotations

import posixpath
import re
from typing import Final

from planner import units
from planner.facts.machine import Os
from probes import llama_help
from probes.host import Host
from probes.llama_build import ENVIRONMENT, TIMEOUT_S, complaint
from probes.llama_find import Place
from probes.routing_callback import Job, Step
from probes.tied import tied

_CHUNKS: Final = re.compile(r"computing over (\d{1,7}) chunks")
_CHUNK: Final = re.compile(r"\[(\d{1,7})\]")


def program(host: Host, place: Place) -> str | None:
    """llama-imatrix beside the engine's server; None without one."""
    if place.server is None:
        return None
    server = place.server.replace("\\", "/") if host.os is Os.WINDOWS else place.server
    name = "llama-imatrix.exe" if host.os is Os.WINDOWS else "llama-imatrix"
    path = posixpath.join(posixpath.dirname(server), name)
    return path if host.is_file(path) else None


def capture(host: Host, path: str, job: Job, step: Step, timeout_s: float, about: int) -> str:
    """Run llama-imatrix over the job's text; why it failed, or nothing. It writes no answer of its own.

    From the main thread: Linux ties its life to the starting thread.

    Args:
        about: tokens that will be read, as far as known.
    """
    told = host.run((path, "--help"), TIMEOUT_S, ENVIRONMENT)
    flags = llama_help.parse(told.stdout) or llama_help.parse(told.stderr)
    size = str(job.chunk)
    argv = [path, "-m", job.model, "-f", job.text, "-o", job.out, "-c", size, "-b", size, "-ub", size, "-ngl", "0"]
    argv += ["-t", str(job.threads), "--chunks", str(job.chunks)]
    argv += ["-fit", "off"] if "-fit" in flags else []
    done, said = 0, ""

    def heard(text: str) -> None:
        nonlocal done, said, about
        if not done and (match := _CHUNKS.search(said := said[-200:] + text)):
            said, about = "", int(match[1]) * job.chunk
            step(0, about)
        latest = max((int(number) for number in _CHUNK.findall(text)), default=done)
        if latest > done:
            done = latest
            step(done * job.chunk, max(about, done * job.chunk))

    run = host.run(tied(host, tuple(argv)), timeout_s, ENVIRONMENT, heard)
    if run.returncode == 0 and host.is_file(job.out):
        return ""
    return _reason(run.stdout + run.stderr) or complaint(run)


def _reason(text: str) -> str:
    """llama-imatrix ends with status 1 and says why in a line of its own (tools/imatrix/imatrix.cpp, b11312)."""
    match = re.search(r"the data file you provided tokenizes to only (\d{1,9}) tokens", text)
    return f"the text has only {units.counted(int(match[1]), 'token')}" if match else ""
