"""Watches one engine: samples it, judges what it shows, and says when to stop waiting for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from planner.facts.machine import DriverModel
from planner.facts.observed import Buffer, Sample
from planner.plans.memory import total
from planner.verify.collapse import Card, Expected, Progress, collapse, headroom
from planner.verify.compare import base

if TYPE_CHECKING:
    from planner.plans.plan import Candidate
    from planner.search import Pricing
    from probes.host import Host
    from probes.server_events import Reading
    from probes.session import Session

STALL_S = 300.0
"""An engine that neither computes a batch nor says a token for so long hangs."""
SLOWEST = 20.0
"""Times the longest predicted time that an answer may take."""
JUDGE_S = 0.5
"""How often an answer is judged while it comes in."""


class Watch:
    """One session's watcher; samples until ``stop``.

    Args:
        candidate: the settings that run, with their prediction.
    """

    def __init__(self, host: Host, pid: int, candidate: Candidate, pricing: Pricing) -> None:
        from probes.sampling import Sampler

        used = [gpu for gpu in pricing.problem.machine.gpus if gpu.id in candidate.settings.devices]
        self._host, self._candidate, self._pricing = host, candidate, pricing
        self.sampler = Sampler(host, pid, tuple(used)).start()
        self._cards = self._counted(())
        self.collapsed = ""

    def load(self, reading: Reading | None) -> str:
        """A tick for the load: memory alone can go wrong there."""
        self.collapsed = headroom(self._cards, self.samples())
        return self.collapsed

    def loaded(self, session: Session) -> None:
        """From here on the engine's own buffers count where it logs them."""
        self._cards = self._counted(session.placement().buffers)

    def _counted(self, logged: tuple[Buffer, ...]) -> tuple[Card, ...]:
        """The devices with what the sums leave free."""
        cards = []
        for device in self._candidate.memory.devices:
            gpu = self._pricing.problem.gpu(device.id)
            buffers = sum(b.n_bytes for b in logged if base(b.device) == device.id)
            taken = buffers + total(device.overhead) if buffers else device.predicted_bytes
            spare = device.total_bytes - device.used_before_bytes - taken
            reserve = dict(self._pricing.reserve).get(device.id, 0)
            hard = gpu.driver_model is DriverModel.WDDM
            cards.append(Card(device.id, device.total_bytes, reserve, hard, spare))
        return tuple(cards)

    def expected(self, prompt_n: int, answer_n: int) -> Expected:
        """What a healthy answer would show."""
        settings = self._candidate.settings
        speed = self._pricing.at(settings, prompt_n, answer_n).speed
        hybrid = bool(settings.n_cpu_moe or settings.n_gpu_layers <= self._pricing.problem.model.n_layer)
        return Expected(speed.decode_tps, speed.prefill_tps, self._cards, hybrid)

    def ticker(self, prompt_n: int, answer_n: int, limit_s: float | None = None) -> Ticker:
        """A tick for one question. Args: limit_s: end it after so long; None waits many times what is expected."""
        return Ticker(self, self.expected(prompt_n, answer_n), (prompt_n, answer_n), self._host.clock(), limit_s)

    def now(self) -> float:
        return self._host.clock()

    def samples(self) -> tuple[Sample, ...]:
        return self.sampler.samples()

    def stop(self) -> None:
        self.sampler.stop()


class Ticker:
    """Judges one answer while it comes in; what it returns ends the wait."""

    def __init__(
        self, watch: Watch, expected: Expected, tokens: tuple[int, int], start_s: float, limit_s: float | None
    ) -> None:
        prompt_n, answer_n = tokens
        self._watch, self._expected, self._prompt_n = watch, expected, prompt_n
        self._start_s, self._last_s = start_s, start_s
        self._seen, self._seen_s = (0, 0), start_s
        self._stall_s = max(STALL_S, SLOWEST * prompt_n / expected.prefill_tps.low)
        most_s = self._stall_s + SLOWEST * answer_n / expected.decode_tps.low
        self._limit_s = most_s if limit_s is None else limit_s

    def __call__(self, reading: Reading | None) -> str:
        now = self._watch.now()
        if now - self._start_s > self._limit_s:
            return f"no end after {self._limit_s:.0f} s"
        if reading is None or now - self._last_s < JUDGE_S:
            return ""
        seen = (reading.processed, len(reading.times_s))
        if seen != self._seen:
            self._seen, self._seen_s = seen, now
        elif now - self._seen_s > self._stall_s:
            return f"no sign of life for {self._stall_s:.0f} s"
        self._last_s = now
        samples = tuple(s for s in self._watch.samples() if s.at_s >= self._start_s)
        self._watch.collapsed = collapse(self._expected, _progress(reading, self._prompt_n, now), samples)
        return self._watch.collapsed


def _progress(reading: Reading, prompt_n: int, now: float) -> Progress:
    progress = Progress(now - reading.start_s, prompt_n, reading.processed)
    return replace(progress, first_s=reading.first_s, gaps_s=reading.gaps_s)
