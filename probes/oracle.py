"""What a llama.cpp would allocate for given flags, without allocating it (``llama-fit-params --fit-print on``).

The engine loads the header with ``no_alloc`` and prints one row per device and one for the host, MiB rounded
down: ``<device> <model> <context> <compute>`` (``common_fit_print``, common/fit.cpp, b11434). On a file that it
cannot load it aborts (status 134 in a shell, signal 6 here). A person asks with
``llama-fit-params -m FILE --fit-print on -fit off -nr -c 4096``.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Final

from planner.facts.allocation import HOST_ROW, Allocation
from planner.facts.machine import Engine, Os
from planner.units import MIB
from probes.host import CompletedRun, Host
from probes.llama_build import ENVIRONMENT, complaint
from probes.probe import Absent, Failed, Found, Outcome
from probes.text import clean

Rows = tuple[Allocation, ...]

TIMEOUT_S: Final = 30.0
"""Measured: 0.1 to 0.7 s of a CPU build, about 1 s with CUDA; a slow disk or a remote device takes longer."""

_LINE: Final = re.compile(r"([A-Za-z0-9_.:\[\]-]{1,64}) (\d{1,9}) (\d{1,9}) (\d{1,9}) *", re.ASCII)
_MAX_ROWS: Final = 64


@dataclass(frozen=True, slots=True)
class Program:
    """What can be asked: llama-fit-params, or the libllama of the embedded engine."""

    path: str
    embedded: bool = False


def find(host: Host, engine: Engine) -> Outcome[Program]:
    """The program beside the engine's llama-server. Forks size memory by rules of their own, so they are left out."""
    if engine.kind != "llama.cpp" or engine.server is None or engine.build is None:
        return Absent(f"the engine ({clean(engine.kind)}) is no llama.cpp of a known build")
    name = "llama-fit-params.exe" if host.os is Os.WINDOWS else "llama-fit-params"
    folder = posixpath.dirname(engine.server.replace("\\", "/") if host.os is Os.WINDOWS else engine.server)
    program = posixpath.join(folder, name)
    return Found(Program(program)) if host.is_file(program) else Absent("no llama-fit-params beside llama-server")


def ask(host: Host, program: str, argv: tuple[str, ...]) -> Outcome[Rows]:
    """Run it once with flags that are spelled for it; it opens no port and allocates no weights."""
    run = host.run((program, *argv, "--fit-print", "on"), TIMEOUT_S, ENVIRONMENT)
    if run.returncode != 0:
        return Failed(f"llama-fit-params {said(run)}")
    return parse(run.stdout)


def parse(text: str) -> Outcome[Rows]:
    """Rows of the table; other lines are log output. It must end with one Host row and name no device twice."""
    matches = (match for line in text.splitlines() if (match := _LINE.fullmatch(line.strip())))
    rows = tuple(Allocation(m[1], int(m[2]) * MIB, int(m[3]) * MIB, int(m[4]) * MIB) for m in matches)
    names = [row.device for row in rows]
    if not rows or names[-1] != HOST_ROW:
        return Failed("llama-fit-params printed no table that ends with its Host row")
    if len(set(names)) != len(names):
        return Failed("llama-fit-params named a device twice")
    if len(rows) > _MAX_ROWS:
        return Failed(f"llama-fit-params named more than {_MAX_ROWS} devices")
    return Found(rows)


def said(run: CompletedRun) -> str:
    """Of an abort the exception's text, which stands before a long trace; else what a failed run said."""
    what = re.search(r"what\(\):\s+(.+)", run.stderr[:20_000])
    if what is None or run.returncode is None:
        return complaint(run)
    return f"ended with status {run.returncode} and said: {clean(what[1])}"
