"""Asks every probe and puts the answers together."""

from __future__ import annotations

from typing import Any, Final, Literal

from planner.errors import STARVED, EngineError, starved
from planner.facts.machine import Machine
from planner.facts.outcome import ProbeReport
from probes import (
    amd,
    apple,
    assemble,
    cgroup,
    cpu,
    intel,
    llama_build,
    llama_devices,
    memory,
    numa,
    nvidia,
    storage,
    swap,
)
from probes.host import Host
from probes.probe import Absent, Failed, Found, Probe, Request, Seen
from probes.text import clean

PROBES: Final = (
    Probe("memory", memory.read),
    Probe("cgroup", cgroup.read),
    Probe("swap", swap.read),
    Probe("cpu", cpu.read),
    Probe("numa", numa.read),
    Probe("nvidia", nvidia.read),
    Probe("amd", amd.read),
    Probe("apple", apple.read),
    Probe("intel", intel.read),
    Probe("storage", storage.read),
    Probe("engine", llama_build.read),
    # After the drivers and the engine: asks the latter only what the former cannot answer.
    Probe("devices", llama_devices.read),
)


def collect(host: Host, *, model_path: str | None, llama: str | None, rpc: tuple[str, ...] = ()) -> Machine:
    """The machine as it is now.

    Args:
        model_path: local file whose disk is looked up; None to leave the disk out.
        llama: folder or binary the user named.
        rpc: ``host:port`` of remote devices.

    Raises:
        EngineError: an engine or a remote device that the user named cannot be used.
        MoeplanError: the size of host memory is unknown.
    """
    return run_probes(host, PROBES, Request(model_path, llama, rpc))


def run_probes(host: Host, probes: tuple[Probe, ...], request: Request) -> Machine:
    """Run probes in order; one that fails is reported and the others go on."""
    seen: dict[str, Found[Any] | Absent | Failed] = {}
    reports = []
    for probe in probes:
        outcome, seconds = _timed(host, probe, request, seen)
        seen[probe.name] = outcome
        reports.append(ProbeReport(probe.name, _status(outcome), assemble.note(outcome), round(seconds, 6)))
    return assemble.machine(host.os, seen, tuple(reports))


def _timed(host: Host, probe: Probe, request: Request, seen: Seen) -> tuple[Found[Any] | Absent | Failed, float]:
    start = host.clock()
    outcome: Found[Any] | Absent | Failed
    try:
        outcome = probe.read(host, request, seen)
    except EngineError:
        raise
    except Exception as e:  # a probe meets whatever a machine holds; its failure must stay its own
        outcome = Failed(STARVED if starved(e) else clean(f"{type(e).__name__}: {e}"))
    return outcome, max(host.clock() - start, 0.0)


def _status(outcome: Found[Any] | Absent | Failed) -> Literal["found", "absent", "failed"]:
    match outcome:
        case Found():
            return "found"
        case Absent():
            return "absent"
        case Failed():
            return "failed"
