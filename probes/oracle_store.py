"""Answers of the oracle, kept between runs: a call costs up to a second, and the answer stays true.

It depends on the model's header, the engine's files and the settings, and these are its name. The engine's own
figures are kept, not their distance from ours, so that a better prediction is never held against an old distance.
"""

from __future__ import annotations

from typing import Any, Final

from planner.facts.allocation import HOST_ROW, Allocation
from planner.units import MIB
from probes import llama_cache
from probes.host import Host
from probes.oracle import Rows

FILE: Final = "oracle"
MAX_ANSWERS: Final = 256
"""The oldest go first; 256 answers of one device are about 30 KB."""


def key(host: Host, program: str, fingerprint: str, question: str) -> str | None:
    """A name for one question about one model to one engine; None if the engine's files cannot be seen."""
    return llama_cache.key(host, host.real_path(program), "oracle", fingerprint, question)


def load(host: Host, name: str | None) -> Rows | None:
    """A kept answer; None if there is none or it makes no sense."""
    rows = _answers(host).get(name) if name else None
    return _sound(rows)


def store(host: Host, name: str | None, rows: Rows) -> None:
    """Keep an answer beside the others."""
    if name is None:
        return
    answers = {k: v for k, v in _answers(host).items() if k != name and _sound(v)}
    kept = dict(list(answers.items())[-(MAX_ANSWERS - 1) :])
    kept[name] = [[r.device, r.model_bytes // MIB, r.context_bytes // MIB, r.compute_bytes // MIB] for r in rows]
    llama_cache.store(host, FILE, {"answers": kept})


def _answers(host: Host) -> dict[str, Any]:
    data = llama_cache.load(host, FILE)
    answers = data.get("answers") if data else None
    return answers if isinstance(answers, dict) else {}


def _sound(rows: Any) -> Rows | None:
    if not isinstance(rows, list) or not rows:
        return None
    if not all(isinstance(row, list) and [type(item) for item in row] == [str, int, int, int] for row in rows):
        return None
    if any(n < 0 for row in rows for n in row[1:]) or rows[-1][0] != HOST_ROW:
        return None
    return tuple(Allocation(name, *(n * MIB for n in figures)) for name, *figures in rows)
