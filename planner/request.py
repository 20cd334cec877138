"""What a user asks the pipeline for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.facts.workload import Workload
from planner.plans.oracle import Ask

if TYPE_CHECKING:
    from probes.timed import Listener


@dataclass(frozen=True, slots=True)
class Measure:
    """How to measure.

    Args:
        listener: who is told of the progress.
        budget_s: what all timed probes may take together.
        refresh: measure again what was kept.
        take_memory: find out how much RAM can really be taken, too.
    """

    listener: Listener
    budget_s: float = 60.0
    refresh: bool = False
    take_memory: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks for.

    Args:
        model: a GGUF path, any shard, or an ``https://`` URL.
        machine_file: a recorded machine; nothing is measured then.
        llama: a llama.cpp folder or program; None looks for one.
        measure: how to measure what was not measured before; None takes kept figures only.
        ask: whether the engine confirms the memory.
        routing: a file that says which experts the model uses.
    """

    model: str
    workload: Workload
    machine_file: str | None = None
    llama: str | None = None
    measure: Measure | None = None
    ask: Ask = Ask.CALL
    routing: str | None = None
