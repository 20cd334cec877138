"""Verified runs, kept by what they hold for: machine, devices and drivers, engine and build, family of models.

A new build or driver is another name, so what was learned before it counts no longer.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Final

from planner.facts.machine import Machine
from probes import store
from probes.host import Host

PROBE: Final = "verified"
MOST: Final = 64
"""Runs that are kept; the oldest go first."""
FINDINGS: Final = ("verified", "slower")
"""Verdicts of runs that teach something: those that answered."""
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Run:
    """One verified run.

    Args:
        question: name of the model and workload it was for.
        decode, prefill: observed rate over the raw predicted one; None if not seen.
        extra: bytes per device beyond the prediction.
        kept: ``(setting, value)`` that differ from the plan.
        finding: the verdict; runs that were stored without one were verified.
        depth: tokens of the longest prompt; None of runs that were stored without it.
        decode_spread, prefill_spread: the band that the run justifies; None if not seen, or stored without it.
    """

    when: str
    question: str
    devices: tuple[str, ...]
    decode: float | None
    prefill: float | None
    extra: tuple[tuple[str, int], ...]
    kept: tuple[tuple[str, str], ...]
    finding: str = "verified"
    depth: int | None = None
    decode_spread: float | None = None
    prefill_spread: float | None = None


def _about(machine: Machine, family: str) -> tuple[str, ...]:
    gpus = tuple(f"{gpu.id}|{gpu.name}|{gpu.total_bytes}|{gpu.driver}" for gpu in machine.gpus)
    engine = machine.engine
    build = "none" if engine is None else f"{engine.kind} {engine.build}"
    return (*store.machine_key(machine), *gpus, build, family)


def load(host: Host, machine: Machine, family: str) -> tuple[Run, ...]:
    """Runs that were kept, oldest first; empty if there are none that make sense."""
    entry = store.load(host, PROBE, _about(machine, family))
    runs = entry.figures.get("runs") if entry is not None else None
    found = (_run(item) for item in runs[-MOST:]) if isinstance(runs, list) else ()
    return tuple(run for run in found if run is not None)


def save(host: Host, machine: Machine, family: str, run: Run) -> str:
    """Keep a run after the others. Where and why it could not be kept; empty if it was."""
    runs = (*load(host, machine, family), run)[-MOST:]
    figures = {"runs": [asdict(item) for item in runs]}
    return store.save(host, PROBE, _about(machine, family), store.Entry(figures, family, run.when, 0.0))


def _run(item: Any) -> Run | None:
    """A kept run, if it is sound."""
    try:
        when, question = str(item["when"]), str(item["question"])
        devices = tuple(map(str, item["devices"]))
        decode, prefill = _ratio(item["decode"]), _ratio(item["prefill"])
        extra = tuple((str(device), int(n)) for device, n in item["extra"])
        kept = tuple((str(name), str(value)) for name, value in item["kept"])
        spreads = [_ratio(item.get(f"{name}_spread")) for name in ("decode", "prefill")]
        finding, depth = item.get("finding", "verified"), item.get("depth")
    except (TypeError, ValueError, KeyError, OverflowError, AttributeError):
        return None
    if finding not in FINDINGS:
        return None
    if not _DATE.fullmatch(when) or any(not 0 <= n < 1 << 60 for _, n in extra):
        return None
    if not (depth is None or (type(depth) is int and 0 <= depth < 1 << 40)):
        return None
    if any(spread is not None and spread < 1.0 for spread in spreads):
        return None
    return Run(when, question, devices, decode, prefill, extra, kept, finding, depth, *spreads)


def _ratio(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not isfinite(number) or not 1e-6 < number < 1e6:
        raise ValueError(value)
    return number
