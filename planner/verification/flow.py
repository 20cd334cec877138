"""Verification from end to end: first answer, steps back while the machine disagrees, trials, and what is learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from planner.plans.verified import Finding, StepBack, Trial, Verification
from planner.verification import first, outcome
from planner.verification.engine import Engine, Kind, Live, Trouble
from planner.verification.first import Seen
from planner.verification.listener import Listener
from planner.verification.startable import Own
from planner.verification.trialling import Base, Lost, Trialling, prompt_for
from planner.verify.backoff import neighbours
from planner.verify.compare import overrun
from planner.verify.proposals import Engine as Abilities
from planner.verify.proposals import proposals

if TYPE_CHECKING:
    from planner.plans.plan import Candidate, Plan
    from planner.plans.settings import Settings
    from planner.plans.verified import Attempt
    from planner.search import Pricing
    from probes.host import Host

MOST_STEPS: Final = 6
"""Steps back before a plan counts as not running here."""
BUSY: Final = 0.25
"""Share of the CPUs that others may take before a speed is no measure of the machine."""
SHARES: Final = 3
"""A trial may take its part of what is left as if so many were to come, so that one cannot eat the budget."""


@dataclass(frozen=True, slots=True)
class Options:
    """Args:
    prompt: the user's first question; None asks one of ours.
    budget_s: what the long look and all trials may take together.
    own: the user's own arguments for llama-server.
    serve: whether to go on with the kept settings.
    """

    prompt: str | None = None
    max_trials: int = 6
    budget_s: float = 300.0
    own: Own = field(default_factory=Own)
    serve: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """A verification, and the engine if it goes on."""

    verification: Verification
    wait: Callable[[], Trouble | None]
    """Serve until the engine ends by itself, and say why; returns at once where nothing serves."""


@contextmanager
def verified(host: Host, plan: Plan, pricing: Pricing, options: Options, listener: Listener) -> Iterator[Running]:
    """Verify a plan; with ``serve`` the engine runs until the context ends."""
    from probes.environment import engine_arguments

    with Engine(host, plan, pricing, options.own) as engine:
        verifier = _Verifier(host, plan, pricing, options, listener, engine)
        if dropped := engine_arguments():
            listener.note(f"not passed on to the engine, the plan decides: {' '.join(dropped)}")
        found = replace(verifier.run(), port=options.own.port)
        live = engine.live() if options.serve and found.finding in (Finding.VERIFIED, Finding.SLOWER) else None
        if live is None:
            engine.end()
            yield Running(found, lambda: None)
            return
        live.watch.stop()
        yield Running(replace(found, url=live.session.url), lambda: _wait(live))


def _wait(live: Live) -> Trouble | None:
    from time import sleep

    if live.session.url is None:
        return None
    while (down := live.session.alive()) is None:
        sleep(0.5)
    return live.trouble(down)


@dataclass(slots=True)
class _State:
    """What has come out so far."""

    steps: list[StepBack] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Verifier:
    def __init__(
        self, host: Host, plan: Plan, pricing: Pricing, options: Options, listener: Listener, engine: Engine
    ) -> None:
        self._host, self._plan, self._pricing, self._options = host, plan, pricing, options
        self._listener, self._engine, self._state = listener, engine, _State()
        self._busy = 0.0

    def run(self) -> Verification:
        from probes.sampling import busy_share

        self._busy = busy_share(self._host) or 0.0
        end = self._host.clock() + self._options.budget_s
        current = self._plan.chosen
        while True:
            seen = self._look(current)
            if isinstance(seen, Seen):
                roomier = self._roomier(current)
                if roomier is None:
                    break
                current = roomier
                continue
            safer = self._safer(current, seen)
            if safer is None:
                return self._failed(seen)
            current = safer
        live = self._engine.live()
        assert live is not None
        base = self._base(live, seen)
        quiet = self._busy <= BUSY
        if not quiet:
            busy = f"{self._busy:.0%} of the CPUs were busy before: the speed seen here is not learned"
            self._state.notes.append(busy)
        report = outcome.Report(self._plan, self._engine.name, live, seen, quiet)
        if seen.spent:
            self._engine.end()
        try:
            kept = self._trials(base, end)
            if self._options.serve:
                self._up(kept)
        except Lost as lost:
            return self._failed(lost.trouble)
        if changed := self._engine.replaced():
            return self._failed(changed)
        state = self._state
        return report.made(self._host, kept, tuple(state.trials), tuple(state.steps), tuple(state.notes))

    def _look(self, current: Candidate) -> Seen | Trouble:
        self._listener.note(f"starting {self._engine.name}")
        live = self._engine.with_settings(current)
        if isinstance(live, Trouble):
            return self._engine.replaced() or live
        self._listener.note(f"ready after {live.session.loaded_s:.1f} s")
        found = first.look(live, self._pricing, self._options.prompt, self._options.budget_s, self._listener)
        if isinstance(found, Trouble):
            return self._engine.replaced() or found
        self._state.notes += found.notes
        return found

    def _roomier(self, current: Candidate) -> Candidate | None:
        """The neighbour to go on with where a device that answered has less free than the rule, if there is one.

        Under the user's own ``--vram`` the gauge says nothing about the budget.
        """
        live, problem = self._engine.live(), self._pricing.problem
        if live is None or problem.workload.vram_bytes:
            return None
        over = overrun(current, live.watch.samples(), self._pricing.reserve)
        if not over:
            return None
        safer = self._safer(current, Trouble(Kind.MEMORY, over))
        if safer is None:
            self._state.notes.append(over)
        return safer

    def _safer(self, current: Candidate, trouble: Trouble) -> Candidate | None:
        """The neighbour to go on with after memory ran out or a run collapsed; None if there is none."""
        if trouble.kind not in (Kind.COLLAPSE, Kind.MEMORY) or len(self._state.steps) >= MOST_STEPS:
            return None
        for changes, found in neighbours(self._pricing.problem, current, self._pricing.candidate):
            step = StepBack(changes, trouble.text)
            self._state.steps.append(step)
            self._listener.note(f"stepping back to {step.words}: {trouble.text}")
            return found
        return None

    def _failed(self, trouble: Trouble) -> Verification:
        self._engine.end()
        state = self._state
        return outcome.failed(
            self._plan, self._engine.name, trouble, tuple(state.trials), tuple(state.steps), tuple(state.notes)
        )

    def _base(self, live: Live, seen: Seen) -> Base:
        speed = seen.predicted.speed
        return Base(
            candidate=live.candidate,
            prefill_tps=seen.measured.prefill_tps or speed.prefill_tps.low,
            decode_tps=seen.measured.decode_tps or speed.decode_tps.low,
            load_s=live.session.loaded_s,
            room=first.room(live),
            prose=seen.prose,
        )

    def _trials(self, base: Base, end: float) -> Candidate:
        """Try what may be faster, best first; each change that is kept is the base of the next."""
        tried: set[Settings] = {base.candidate.settings}
        if base.room < 1:
            self._state.notes.append("the context has no room for trials")
            return base.candidate
        while len(self._state.trials) < self._options.max_trials:
            found = self._next(base, frozenset(tried), end)
            if found is None:
                break
            attempt, prompt_n = found
            tried.add(attempt.settings)
            trial = Trialling(self._engine, self._pricing, base, attempt, prompt_n).run(
                self._host.clock, self._share(end)
            )
            self._state.trials.append(trial)
            self._listener.note(f"{attempt.words}: {'kept' if trial.kept else 'dropped'}, {trial.reason}")
            if trial.kept and trial.after is not None:
                base = replace(
                    base,
                    candidate=self._pricing.candidate(attempt.settings),
                    prefill_tps=trial.after.prefill_tps,
                    decode_tps=trial.after.decode_tps,
                )
        return base.candidate

    def _share(self, end: float) -> float:
        """When a trial that begins now must end."""
        left = min(self._options.max_trials - len(self._state.trials), SHARES)
        return self._host.clock() + (end - self._host.clock()) / max(left, 1)

    def _next(self, base: Base, tried: frozenset[Settings], end: float) -> tuple[Attempt, int] | None:
        """The best change that there is time for, with its prompt."""
        wanted = self._pricing.problem.workload.prompt_tokens
        abilities = _abilities(self._plan, self._engine)
        late: list[str] = []
        for attempt in proposals(self._pricing.problem, base.candidate, self._pricing.candidate, abilities, tried):
            prompt_n = prompt_for(base, attempt, wanted, self._share(end) - self._host.clock())
            if prompt_n is not None:
                self._listener.note(f"trying {attempt.words} ({attempt.gain:.0%} expected: {attempt.basis})")
                return attempt, prompt_n
            late.append(attempt.words)
        if late:
            self._state.notes.append(f"no time left to try {'; '.join(late)}: --budget SECONDS gives more")
        return None

    def _up(self, kept: Candidate) -> None:
        live = self._engine.with_settings(kept)
        if isinstance(live, Trouble):
            raise Lost(live)


def _abilities(plan: Plan, engine: Engine) -> Abilities:
    flags = plan.machine.engine.flags if plan.machine.engine else ()
    return Abilities(flags, engine.spells)


def first_attempts(host: Host, plan: Plan, pricing: Pricing, options: Options) -> tuple[Attempt, ...]:
    """What would be tried, best first, if nothing were kept. Starts nothing."""
    engine = Engine(host, plan, pricing, options.own)
    tried = frozenset({plan.chosen.settings})
    found = proposals(pricing.problem, plan.chosen, pricing.candidate, _abilities(plan, engine), tried)
    return found[: options.max_trials]
