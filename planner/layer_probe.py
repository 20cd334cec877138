"""The probe that times a layer of the user's model, as ``probes.timed`` keeps and runs it.

Measuring is in ``planner.layer_timing``, imported when there is something to measure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.facts.machine import Machine
from planner.facts.outcome import LAYER
from probes import layer_figures
from probes.host import Host
from probes.probe import Outcome
from probes.timed import Figures, Subject, Timed

MOST_S: Final = 35.0


def layer_probe(llama: str | None, rpc: tuple[str, ...]) -> Timed:
    """The probe, for the engine that would run.

    Args:
        llama: folder or program the user named.
        rpc: servers of remote devices, each timed as a device of its own.
    """
    return Timed(
        LAYER,
        what="a layer of this model on each device",
        purpose="what decode and prefill really take",
        most_s=MOST_S,
        nothing=_nothing,
        about=lambda subject: _about(subject, rpc),
        measure=lambda host, subject, seconds: _measure(host, subject, seconds, llama, rpc),
        apply=_apply,
        keeps_failure=True,  # half a minute that would fail again
    )


def _nothing(subject: Subject) -> str:
    if subject.model is None:
        return "no local model was named"
    return "" if subject.machine.engine is not None else "no llama.cpp to time it with"


def _about(subject: Subject, rpc: tuple[str, ...]) -> tuple[str, ...]:
    """The model, the build, the devices; threads follow from the processor, which every figure depends on."""
    engine, model = subject.machine.engine, subject.model
    build = f"{engine.kind} {engine.build} {engine.server or ''}" if engine else ""
    gpus = (f"{gpu.id}|{gpu.name}|{gpu.total_bytes}|{gpu.driver}" for gpu in subject.machine.gpus)
    return (model.fingerprint if model else "", build, *gpus, *rpc)


def _apply(machine: Machine, data: Figures) -> Machine:
    return replace(machine, layers=tuple(layer_figures.from_json(item) for item in data["rates"]))


def _measure(host: Host, subject: Subject, seconds: float, llama: str | None, rpc: tuple[str, ...]) -> Outcome[Figures]:
    from planner.layer_timing import time_layers

    return time_layers(host, subject, seconds, llama, rpc)
