"""Measured figures kept between runs, by what they hold for.

A figure holds for a machine (system, processor, cores, size of RAM) and for whatever else its probe names: the
GPUs and their driver, the file system and path of a model, a model's fingerprint and an engine's build. Each
probe has one small file in the user's cache folder; it is replaced as a whole. What is damaged, of another
format or about something else counts as not there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from planner.facts.machine import Machine
from probes.host import Host

SCHEMA: Final = "moeplan.measured/1"


@dataclass(frozen=True, slots=True)
class Entry:
    """What one probe measured.

    Args:
        figures: what the probe's ``apply`` reads.
        note: what there is to say about it.
        when: local date, ``YYYY-MM-DD``.
        duration_s: how long it took.
    """

    figures: dict[str, Any]
    note: str
    when: str
    duration_s: float


def machine_key(machine: Machine) -> tuple[str, ...]:
    """What every figure depends on. Free memory is no part of it."""
    cpu = machine.cpu
    cores = f"{cpu.physical_cores}/{cpu.performance_cores}/{cpu.logical_cores}"
    return (machine.os.value, cpu.name or "", cores, str(machine.ram.total_bytes))


def load(host: Host, probe: str, about: tuple[str, ...]) -> Entry | None:
    """What was kept for exactly this; None if there is nothing usable."""
    text = host.cached(_name(probe, about))
    try:
        data = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        return None
    if data.get("probe") != probe or data.get("about") != list(about):
        return None
    figures, note, when, took = (data.get(name) for name in ("figures", "note", "when", "duration_s"))
    sound = isinstance(figures, dict) and isinstance(note, str) and isinstance(when, str)
    if not sound or isinstance(took, bool) or not isinstance(took, int | float) or not 0 <= took < 1e6:
        return None
    return Entry(figures, note, when, float(took))  # type: ignore[arg-type]  # checked in ``sound``


def save(host: Host, probe: str, about: tuple[str, ...], entry: Entry) -> str:
    """Where and why it could not be kept; empty if it was."""
    data = {
        "schema": SCHEMA,
        "probe": probe,
        "about": list(about),
        "when": entry.when,
        "duration_s": round(entry.duration_s, 3),
        "note": entry.note,
        "figures": entry.figures,
    }
    return host.keep(_name(probe, about), json.dumps(data, indent=1) + "\n")


def _name(probe: str, about: tuple[str, ...]) -> str:
    from hashlib import sha256

    digest = sha256("\0".join((SCHEMA, probe, *about)).encode("utf-8", "replace")).hexdigest()
    return f"measured-{probe}-{digest[:24]}"
