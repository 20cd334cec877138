"""How much RAM can really be taken now, by taking it: ``--probe-mem``.

The system's own figure is an estimate that leaves out what it could compress or drop. Twenty-four steps to 1.25
times that figure, in a process of its own (``script_touch``). The result may raise the figure, never lower it:
a climb to the physical limit measured 0.9 GB on a phone that held a 4.4 GB model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from planner.facts.machine import Machine
from planner.units import MIB, size
from probes.host import Host
from probes.probe import Absent, Failed, Found, Outcome
from probes.text import clean, whole

STEPS: Final = 24
REACH: Final = 1.25


def measure(host: Host, machine: Machine, seconds: float) -> Outcome[dict[str, Any]]:
    """``{"taken_bytes": n}``. A process that was ended on the way took what it last said."""
    ram = machine.ram
    if ram.available_bytes is None:
        return Absent("the system does not say how much is available")
    target = min(int(ram.available_bytes * REACH), ram.total_bytes)
    step = max(target // STEPS // MIB * MIB, MIB)
    run = host.run_script("script_touch.py", (str(target), str(step)), seconds)
    lines = run.stdout.split("\n")
    steps = [taken for line in lines if (taken := whole(line)) is not None]
    if not steps:
        return Failed(run.problem or clean(run.stderr[-200:]) or "nothing could be taken")
    why = next((clean(line) for line in lines if line and whole(line) is None), run.problem or "it was ended")
    return Found({"taken_bytes": min(steps[-1], ram.total_bytes)}, f"took {size(steps[-1])}, then: {why}")


def apply(machine: Machine, data: dict[str, Any]) -> Machine:
    """The larger of what the system says and what could be taken."""
    taken, said = int(data["taken_bytes"]), machine.ram.available_bytes
    return replace(machine, ram=replace(machine.ram, available_bytes=max(taken, said or 0)))
