"""``moeplan routing``: a capture, what it takes, and how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from planner.facts.model import Model
from planner.facts.routing import Routing
from planner.routing.capture import Capture, Way, prepare, run

if TYPE_CHECKING:
    from planner.facts.machine import Machine
    from planner.plans.speed import Speed

SAMPLE: Final = Path(__file__).with_name("sample.txt")
"""Prose in three languages, code, numbers and a dialogue: for users without a text of their own."""


class Watcher(Protocol):
    """Who is told what a capture does, what it takes at least, and how far it is."""

    def begin(self, capture: Capture) -> None: ...

    def counted(self, text: int, answer: int, least_s: float) -> None: ...

    def step(self, done: int, of: int, left_s: float) -> None: ...

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
    wanted.watcher.begin(capture)
    course = Course(wanted.watcher, capture.job.answer, _speed(model, machine, capture), host.clock)
    try:
        return run(host, model, capture, course.step)
    finally:
        wanted.watcher.end()


class Course:
    """A capture as it goes: what the engine has counted, and what is left by what was done.

    Args:
        answer: tokens that the model writes after the text.
        speed: of the engine alone, without the pauses at every router: it takes at least that.
    """

    def __init__(self, watcher: Watcher, answer: int, speed: Speed, clock: Callable[[], float]) -> None:
        self._watcher, self._answer, self._speed, self._clock = watcher, answer, speed, clock
        self._text, self._begun, self._read = 0, clock(), clock()

    def step(self, done: int, of: int) -> None:
        now, speed = self._clock(), self._speed
        if not self._text:
            self._text = of - self._answer
            self._begun = self._read = now
            least = self._text / speed.prefill_tps.high + self._answer / speed.decode_tps.high
            self._watcher.counted(self._text, self._answer, least)
        if done <= self._text:
            self._read = now
        if done:
            self._watcher.step(done, of, self._left(done, of, now))

    def _left(self, done: int, of: int, now: float) -> float:
        """Seconds: a token of the answer takes as much more than one of the text as predicted, until it is seen."""
        if done > self._text:
            return (now - self._read) / (done - self._text) * (of - done)
        dearer = self._speed.prefill_tps.mid / self._speed.decode_tps.mid
        return (now - self._begun) / done * (self._text - done + dearer * self._answer)


def _speed(model: Model, machine: Machine, capture: Capture) -> Speed:
    """What the CPU does by the speed model, every piece of text for itself."""
    from planner.cost.evaluate import Evaluator
    from planner.cost.model import CostModel
    from planner.facts.workload import Workload
    from planner.plans.settings import Settings

    job = capture.job
    work = Workload(prompt_tokens=job.chunk, answer_tokens=max(job.answer, 1))
    settings = Settings(n_ctx=job.chunk + job.answer, n_gpu_layers=0, n_ubatch=job.chunk, threads=job.threads)
    return Evaluator(CostModel(model, machine), work).candidate(settings, ()).speed
