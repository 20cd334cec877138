"""Host to device copy rates of every CUDA device, pinned and pageable, and the rate of its own memory.

Each device is measured in a process of its own (``script_cuda``), so that a driver that dies takes neither us nor
the next device with it, and no context stays. Nothing here asks NVML meanwhile: polling cut pinned copies from
23.5 to 16.8 GB/s (RTX 4080 SUPER). Compare with ``nvbandwidth -t host_to_device_memcpy_ce``.

Other backends have no library that is there on every machine; their rates stay reported or assumed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from planner.facts.machine import Backend, Gpu, Machine
from planner.facts.reading import Reading
from probes import figures
from probes.host import CompletedRun, Host
from probes.probe import Absent, Found, Outcome
from probes.text import clean

DEVICE_S: Final = 3.0
START_S: Final = 20.0
"""A driver may take that long to make the first context of a boot."""
CONFIRMS: Final = 0.6
"""Copies reached 0.80 of the nominal 4.8 TB/s of an H200."""
_RATES: Final = {
    "pinned": ("h2d_pinned_bps", "page-locked copies"),
    "pageable": ("h2d_pageable_bps", "pageable copies"),
    "copy": ("memory_bps", "device copy, bytes read and written"),
}


def cuda_devices(machine: Machine) -> tuple[tuple[int, Gpu], ...]:
    """CUDA devices with the ordinal a CUDA program sees them under (``CUDA1`` → 1)."""
    numbered = ((gpu.id.removeprefix("CUDA"), gpu) for gpu in machine.gpus if gpu.backend is Backend.CUDA)
    return tuple((int(number), gpu) for number, gpu in numbered if number.isdecimal())


def nothing(machine: Machine) -> str:
    """Why there is no link to measure; empty if there is one."""
    if cuda_devices(machine):
        return ""
    others = sorted({gpu.backend.value for gpu in machine.gpus if gpu.backend is not None})
    return f"copies are measured for CUDA only, not for {', '.join(others)}" if others else "no GPU"


def measure(host: Host, machine: Machine, seconds: float) -> Outcome[dict[str, Any]]:
    """Rates by device id; a device that died in the probe has ``died`` with the reason."""
    devices = cuda_devices(machine)
    found: dict[str, Any] = {}
    notes: list[str] = []
    each = min(DEVICE_S, seconds / max(len(devices), 1))
    for ordinal, gpu in devices:
        start = host.clock()
        run = host.run_script("script_cuda.py", (str(ordinal), f"{each:.2f}"), each + START_S)
        answer = parse(run)
        took = host.clock() - start
        if "absent" in answer:
            notes.append(f"{gpu.id}: {answer['absent']}")
            continue
        found[gpu.id] = answer if "died" in answer else _readings(answer, took)
        notes.append(f"{gpu.id}: {_summary(found[gpu.id])}")
    note = "; ".join(notes)
    return Found(found, note) if found else Absent(note or nothing(machine))


def parse(run: CompletedRun) -> dict[str, Any]:
    """The script's answer; a process that ended without one died."""
    try:
        answer = json.loads(run.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        answer = None
    if isinstance(answer, dict):
        for name in ("absent", "died"):
            if name in answer:
                return {name: clean(str(answer[name]))}
        return answer
    said = clean(run.stderr.strip()[-200:])
    return {"died": run.problem or f"its process ended with status {run.returncode}{': ' + said if said else ''}"}


def _readings(answer: dict[str, Any], took: float) -> dict[str, Any]:
    rates = {
        name: figures.to_json(figures.measured([float(rate) for rate in answer[name]], method, took))
        for name, (_, method) in _RATES.items()
        if answer.get(name)
    }
    return {**rates, "shared": answer.get("shared") is True}


def _summary(answer: dict[str, Any]) -> str:
    if "died" in answer:
        return f"died in the probe ({answer['died']}); it is left out"
    words = [f"{name} {answer[name]['value'] / 1e9:,.1f} GB/s" for name in _RATES if name in answer]
    return ", ".join([*words, "shares RAM"] if answer["shared"] else words)


def apply(machine: Machine, data: dict[str, Any]) -> Machine:
    """The machine with measured rates, without the devices that died. Raises ValueError for a damaged record.

    A device whose allocations are missing from RAM shares it, whatever the driver calls it.
    """
    gpus = []
    for gpu in machine.gpus:
        answer = data.get(gpu.id, {})
        if "died" in answer:
            continue
        rates: dict[str, Any] = {
            field: figures.from_json(answer[name]) for name, (field, _) in _RATES.items() if name in answer
        }
        if "memory_bps" in rates:
            rates["memory_bps"] = memory_rate(gpu.memory_bps, rates["memory_bps"])
        gpus.append(replace(gpu, unified=gpu.unified or answer.get("shared") is True, **rates))
    return replace(machine, gpus=tuple(gpus))


def memory_rate(nominal: Reading | None, copied: Reading) -> Reading:
    """The nominal rate of a device's memory where a copy confirms it, else what the copy reached.

    The shares of the speed model are of the nominal rate; a copy loses to turning between reads and writes, so
    it confirms from ``CONFIRMS`` of the nominal rate up to all of it.
    """
    if nominal is not None and CONFIRMS * nominal.value <= copied.value <= nominal.value:
        return nominal
    return copied
