"""What a verification does, step by step: looks, steps back while the machine disagrees, trials, a last look."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from planner.plans.verified import StepBack, Trial, Verification
from planner.verification import looking, outcome
from planner.verification.engine import Engine, Kind, Trouble
from planner.verification.listener import Listener
from planner.verification.looking import Seen
from planner.verification.options import Options
from planner.verification.trialling import Base, Lost, Trialling
from planner.verify.backoff import neighbours
from planner.verify.budget import EARLY, KEPT_BACK, LEAST_PROMPT, Bounds, Choice, ask_s, choose, depth, too_dear
from planner.verify.compare import overrun
from planner.verify.learn import changed
from planner.verify.proposals import Engine as Abilities
from planner.verify.proposals import proposals
from planner.verify.steady import said_before

if TYPE_CHECKING:
    from planner.plans.plan import Candidate, Plan
    from planner.plans.settings import Settings
    from planner.search import Pricing
    from probes.host import Host

MOST_STEPS: Final = 6
"""Steps back before a plan counts as not running here."""
FIRST_LOOK: Final = 256
"""Tokens of the first prompt of ours: little anywhere, and enough to tell what an assumed rate is worth."""


@dataclass(slots=True)
class _State:
    """What has come out so far.

    Args:
        end: monotonic second at which the budget is spent.
        busy: share of the CPUs that others took before.
    """

    steps: list[StepBack] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    end: float = 0.0
    busy: float | None = None


class Verifier:
    def __init__(
        self, host: Host, plan: Plan, pricing: Pricing, options: Options, listener: Listener, engine: Engine
    ) -> None:
        self._host, self._plan, self._pricing, self._options = host, plan, pricing, options
        self._listener, self._engine, self._state = listener, engine, _State()

    def run(self) -> Verification:
        from probes.sampling import busy_share

        self._state.busy = busy_share(self._host)
        seen = self._holding(self._plan.chosen)
        if isinstance(seen, Trouble):
            return self._failed(seen)
        try:
            kept, seen = self._settled(seen)
            if self._options.serve:
                self._up(kept)
        except Lost as lost:
            return self._failed(lost.trouble)
        if replaced := self._engine.replaced():
            return self._failed(replaced)
        state = self._state
        report = outcome.Report(self._plan, self._engine.name, seen, self._pricing, state.busy)
        return report.made(self._host, kept, tuple(state.trials), tuple(state.steps), tuple(state.notes))

    def _settled(self, seen: Seen) -> tuple[Candidate, Seen]:
        """What trials keep, looked at as deep as there is time for; what does not hold there is stepped back from.

        Raises Lost.
        """
        before = seen.live.candidate
        kept = self._trials(seen)
        while True:
            found = self._last_look(kept, seen)
            trouble = found if isinstance(found, Trouble) else self._tight(found) if found is not seen else None
            if trouble is None:
                assert isinstance(found, Seen)
                return kept, found
            safer = self._back(before, kept, trouble)
            if safer is None and isinstance(found, Seen):
                self._state.notes.append(trouble.text)
                return kept, found
            if safer is None:
                raise Lost(trouble)
            if safer is not before:
                held = self._holding(safer)
                if isinstance(held, Trouble):
                    raise Lost(held)
                seen, before = held, held.live.candidate
            kept = before

    def _holding(self, current: Candidate) -> Seen | Trouble:
        """The first settings on the way back that hold, as they were seen; or why none do."""
        while True:
            seen = self._look(current)
            safer = self._roomier(seen) if isinstance(seen, Seen) else self._safer(current, seen)
            if safer is None:
                return seen
            current = safer

    def _look(self, current: Candidate) -> Seen | Trouble:
        """The first answer, then prompts that grow as long as they are cheap: each says what the next will take."""
        self._listener.note(f"starting {self._engine.name}")
        live = self._engine.with_settings(current)
        if isinstance(live, Trouble):
            return self._engine.replaced() or live
        self._listener.note(f"ready after {live.session.loaded_s:.1f} s")
        seen = looking.first(live, self._pricing, self._options.prompt, self._listener)
        if isinstance(seen, Seen):
            self._state.notes += looking.notes(seen)
            budget_s = self._options.budget_s
            share = KEPT_BACK if self._state.trials else 1.0
            self._state.end = max(self._state.end, self._host.clock() + share * budget_s)
            deepest = self._wanted(seen)
            batch = max(current.settings.n_ubatch, LEAST_PROMPT)
            for prompt_n in sorted({min(n, deepest) for n in (FIRST_LOOK, batch, deepest)}):
                if isinstance(seen, Seen):
                    seen = self._longer(seen, prompt_n, EARLY * budget_s)
        return self._engine.replaced() or seen if isinstance(seen, Trouble) else seen

    def _wanted(self, seen: Seen) -> int:
        return looking.wanted(seen.slot, self._pricing.problem.workload.prompt_tokens)

    def _longer(self, seen: Seen, prompt_n: int, seconds: float) -> Seen | Trouble:
        """A longer prompt, if it takes no more than so many seconds."""
        pace = looking.pace_of(seen, self._pricing, max(prompt_n, 1))
        if seen.spent or not prompt_n or depth(pace, prompt_n, seconds) < prompt_n:
            return seen
        return looking.longer(seen, prompt_n, pace, seconds, self._listener)

    def _last_look(self, kept: Candidate, seen: Seen) -> Seen | Trouble:
        """The deepest look that the rest of the budget pays for, at what was kept.

        A look at other settings counts where their memory is the same.
        """
        deepest, looked = self._wanted(seen), seen.live.candidate
        if seen.depth >= deepest and looked.memory == kept.memory:
            return seen
        pace = looking.pace_of(seen, self._pricing, max(deepest, 1))
        left_s = self._state.end - self._host.clock()
        affordable = depth(pace, deepest, left_s)
        if (affordable <= seen.depth and looked.memory == kept.memory) or affordable < LEAST_PROMPT:
            return seen
        if seen.spent:
            self._engine.end()
        live = self._engine.with_settings(kept)
        if isinstance(live, Trouble):
            return self._engine.replaced() or live
        found = looking.longer(replace(seen, live=live, spent=False), affordable, pace, left_s, self._listener)
        if isinstance(found, Trouble):
            return self._engine.replaced() or found
        if found.spent:
            self._engine.end()
            return seen
        return found

    def _tight(self, seen: Seen) -> Trouble | None:
        """That a device has less free than the rule after it answered.

        Under the user's own ``--vram`` the gauge says nothing about the budget.
        """
        if self._pricing.problem.workload.vram_bytes:
            return None
        over = overrun(seen.live.candidate, seen.live.watch.samples(), self._pricing.reserve)
        return Trouble(Kind.MEMORY, over) if over else None

    def _roomier(self, seen: Seen) -> Candidate | None:
        """The neighbour to go on with where a device has less free than the rule, if there is one."""
        tight = self._tight(seen)
        if tight is None:
            return None
        safer = self._safer(seen.live.candidate, tight)
        if safer is None:
            self._state.notes.append(tight.text)
        return safer

    def _safer(self, current: Candidate, trouble: Trouble) -> Candidate | None:
        """The neighbour to go on with after memory ran out or a run collapsed; None if there is none."""
        if trouble.kind not in (Kind.COLLAPSE, Kind.MEMORY) or len(self._state.steps) >= MOST_STEPS:
            return None
        for changes, found in neighbours(self._pricing.problem, current, self._pricing.candidate):
            self._step(changes, trouble)
            return found
        return None

    def _back(self, before: Candidate, kept: Candidate, trouble: Trouble) -> Candidate | None:
        """Where to go from settings that did not hold in the last look: to those before the trials, if they differ."""
        if before.settings == kept.settings or trouble.kind not in (Kind.COLLAPSE, Kind.MEMORY):
            return self._safer(kept, trouble)
        self._step(changed(kept.settings, before.settings), trouble)
        undone = f"faster in short runs, but not kept: {trouble.text}"
        self._state.trials = [replace(t, kept=False, reason=undone) if t.kept else t for t in self._state.trials]
        return before

    def _step(self, changes: tuple[tuple[str, object], ...], trouble: Trouble) -> None:
        step = StepBack(changes, trouble.text)
        self._state.steps.append(step)
        self._listener.note(f"stepping back to {step.words}: {trouble.text}")

    def _failed(self, trouble: Trouble) -> Verification:
        self._engine.end()
        state = self._state
        notes = tuple(filter(None, (said_before(state.busy), *state.notes)))
        return outcome.failed(self._plan, self._engine.name, trouble, tuple(state.trials), tuple(state.steps), notes)

    def _trials(self, seen: Seen) -> Candidate:
        """Try what may be faster, best first; each change that is kept is the base of the next. Raises Lost."""
        pace = looking.pace_of(seen, self._pricing, max(seen.depth, 1))
        base = Base(seen.live.candidate, pace, looking.room(seen.slot), seen.prose)
        if seen.spent:
            self._engine.end()
        tried: set[Settings] = {base.candidate.settings}
        if looking.room(seen.slot) < 1:
            self._state.notes.append("the context has no room for trials")
            return base.candidate
        deepest = self._wanted(seen)
        look_s = ask_s(looking.pace_of(seen, self._pricing, max(deepest, 1)), deepest)
        end = self._state.end - min(look_s, KEPT_BACK * self._options.budget_s)
        while len(self._state.trials) < self._options.max_trials:
            choice = self._next(base, frozenset(tried), end)
            if choice is None:
                break
            tried.add(choice.attempt.settings)
            trial = self._trial(base, choice)
            if trial.kept and trial.before is not None and trial.after is not None:
                pace = base.pace.times(trial.before, trial.after)
                base = replace(base, candidate=self._pricing.candidate(choice.attempt.settings), pace=pace)
        return base.candidate

    def _trial(self, base: Base, choice: Choice) -> Trial:
        attempt, clock = choice.attempt, self._host.clock
        trial = Trialling(self._engine, self._pricing, base, attempt, choice.prompt_n).run(
            clock, clock() + choice.allowed_s
        )
        self._state.trials.append(trial)
        self._listener.note(f"{attempt.words}: {'kept' if trial.kept else 'dropped'}, {trial.reason}")
        return trial

    def _next(self, base: Base, tried: frozenset[Settings], end: float) -> Choice | None:
        """The best change that there is time for."""
        problem = self._pricing.problem
        found = proposals(problem, base.candidate, self._pricing.candidate, abilities(self._plan, self._engine), tried)
        bounds = Bounds(problem.workload.prompt_tokens, base.room)
        more = self._options.max_trials - len(self._state.trials)
        left_s = end - self._host.clock()
        choice = choose(base.pace, found, bounds, left_s, more)
        if choice is None and found:
            self._state.notes.append(too_dear(base.pace, found, bounds, left_s, self._state.end - end))
        elif choice is not None:
            words = f"trying {choice.attempt.words}: {choice.attempt.forecast}, {choice.seconds:.0f} s or more"
            self._listener.note(words)
        return choice

    def _up(self, kept: Candidate) -> None:
        live = self._engine.with_settings(kept)
        if isinstance(live, Trouble):
            raise Lost(live)


def abilities(plan: Plan, engine: Engine) -> Abilities:
    """What the engine of a plan can do."""
    flags = plan.machine.engine.flags if plan.machine.engine else ()
    return Abilities(flags, engine.spells)
