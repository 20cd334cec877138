"""``moeplan routing``: what a capture will cost, said first, and then the capture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from planner.facts.model import Model
from planner.facts.routing import Routing
from planner.routing.capture import Capture, Way, prepare, run

if TYPE_CHECKING:
    from planner.facts.machine import Machine
    from planner.plans.speed import Band

SAMPLE: Final = Path(__file__).with_name("sample.txt")
"""Prose in three languages, code, numbers and a dialogue: for users without a text of their own."""


class Watcher(Protocol):
    """Who is told what a capture costs, and how far it is."""

    def begin(self, capture: Capture, seconds: Band | None) -> None: ...

    def step(self, done: int, of: int) -> None: ...

    def end(self) -> None: ...


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """What a user asks for.

    Args:
        text: a file; None takes the sample.
        tokens: of the text that are read at most.
        answer: tokens that the model then writes.
    """

    model: str
    llama: str | None
    text: str | None
    way: Way
    tokens: int
    answer: int
    watcher: Watcher


def record(model: Model, wanted: CaptureRequest) -> Routing:
    """Say what it takes, and do it. Raises CaptureError, EngineError."""
    from probes.collect import collect
    from probes.host import LocalHost

    host = LocalHost()
    machine = collect(host, model_path=None, llama=wanted.llama, rpc=())
    threads = machine.cpu.performance_cores or machine.cpu.physical_cores or machine.cpu.logical_cores or 1
    text = wanted.text or str(SAMPLE)
    capture = prepare(host, model, wanted.llama, wanted.way, text, wanted.tokens, wanted.answer, threads)
    wanted.watcher.begin(capture, _seconds(model, machine, capture))
    try:
        return run(host, model, capture, wanted.watcher.step)
    finally:
        wanted.watcher.end()


def _seconds(model: Model, machine: Machine, capture: Capture) -> Band | None:
    """What the CPU takes for it, by the speed model; with a pause at every router it takes a little more."""
    from planner.cost.evaluate import Evaluator
    from planner.cost.model import CostModel
    from planner.facts.workload import Workload
    from planner.plans.settings import Settings

    job = capture.job
    work = Workload(prompt_tokens=capture.prompt_tokens, answer_tokens=max(job.answer, 1))
    settings = Settings(n_ctx=job.chunk + job.answer, n_gpu_layers=0, n_ubatch=job.chunk, threads=job.threads)
    return Evaluator(CostModel(model, machine), work).candidate(settings, ()).speed.turn_s
