"""One trial: two settings in interleaved blocks on the real engine, until the numbers decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final

from planner.facts.workload import Goal
from planner.plans.verified import Attempt, Rates, Trial
from planner.verification.looking import filled
from planner.verify.blocks import LEAST, MOST, TOKENS, Arm, Judged, Ruling, judged, order
from planner.verify.budget import Pace, ask_s, warm_up
from planner.verify.compare import peak_bytes
from planner.verify.steady import Apart, blocks_apart

if TYPE_CHECKING:
    from planner.facts.observed import Answer
    from planner.plans.plan import Candidate
    from planner.search import Pricing
    from planner.verification.engine import Engine, Live, Trouble

PROMPTS: Final = 2
"""Prompts that take turns, so that each arm meets every one more than once."""
PATIENCE: Final = 3.0
"""A block of the change may take so many times a block of what is."""
GRACE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Base:
    """What trials are held against.

    Args:
        pace: rates that were just seen, and seconds of a start.
        room: prompt tokens that fit a slot.
        prose: tokens to make prompts from.
    """

    candidate: Candidate
    pace: Pace
    room: int
    prose: tuple[int, ...]


class Lost(Exception):
    """The settings that had been verified no longer run. Args: trouble: why."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.text)
        self.trouble = trouble


@dataclass(slots=True)
class _Course:
    """A trial while it runs."""

    answers: dict[Arm, list[Answer]] = field(default_factory=lambda: {Arm.A: [], Arm.B: []})
    greedy: dict[tuple[Arm, int], tuple[int, ...]] = field(default_factory=dict)
    costs: list[tuple[float, float]] = field(default_factory=list)
    result: Judged | None = None


class Trialling:
    """Runs one attempt against a base, with prompts of ``prompt_n`` tokens."""

    def __init__(self, engine: Engine, pricing: Pricing, base: Base, attempt: Attempt, prompt_n: int) -> None:
        self._engine, self._pricing, self._base, self._attempt = engine, pricing, base, attempt
        self._prompt_n = prompt_n
        self._course = _Course()
        self._arms = {Arm.A: base.candidate, Arm.B: pricing.candidate(attempt.settings)}
        self._peaks: dict[str, int] = {}

    def run(self, clock: Callable[[], float], deadline: float) -> Trial:
        """Blocks until they decide, or until a pair would end after the deadline (monotonic seconds).

        Raises:
            Lost: the settings before the change ended or collapsed.
        """
        course, late = self._course, False
        for number, pair in enumerate(order(MOST)):
            if number >= 1 and clock() + 2 * ask_s(self._base.pace, self._prompt_n) > deadline:
                late = True
                break
            cost: dict[Arm, float] = {}
            for arm in pair:
                found = self._block(arm, number % PROMPTS)
                if isinstance(found, str):
                    return self._trial(kept=False, reason=found)
                cost[arm] = self._cost(found)
            course.costs.append((cost[Arm.A], cost[Arm.B]))
            course.result = judged(tuple(course.costs))
            if course.result.ruling is not Ruling.MORE:
                break
        kept = course.result is not None and course.result.ruling is Ruling.KEEP
        return self._trial(kept=kept, reason=self._reason(kept, late))

    def _block(self, arm: Arm, prompt: int) -> Answer | str:
        """One block; a text says why the change is out."""
        from planner.verification.engine import Trouble
        from probes.session import Question

        live = self._up(arm)
        if isinstance(live, str):
            return live
        sampler = live.watch.sampler
        sampler.take()
        sampler.pause(True)
        tokens = filled(self._base.prose, self._prompt_n, 97 * prompt)
        try:
            found = live.ask(Question(tokens, TOKENS, exact=True), self._prompt_n, lambda piece: None, self._limit(arm))
        finally:
            sampler.pause(False)
        sampler.take()
        if isinstance(found, Trouble):
            return self._out(arm, found)
        self._course.answers[arm].append(found)
        if arm is Arm.B:
            for device, n_bytes in peak_bytes(live.watch.samples()).items():
                self._peaks[device] = max(n_bytes, self._peaks.get(device, 0))
        return self._differs(arm, prompt, found.tokens) or found

    def _up(self, arm: Arm) -> Live | str:
        """The engine with an arm's settings, warm."""
        from planner.verification.engine import Trouble
        from probes.session import Question

        before = self._engine.live()
        live = self._engine.with_settings(self._arms[arm])
        if isinstance(live, Trouble):
            return self._out(arm, live)
        if live is before:
            return live
        prompt_n, answer_n = warm_up(self._base.pace, self._attempt, self._prompt_n)
        found = live.ask(
            Question(filled(self._base.prose, prompt_n), answer_n, exact=True), prompt_n, lambda piece: None
        )
        return self._out(arm, found) if isinstance(found, Trouble) else live

    def _limit(self, arm: Arm) -> float | None:
        """What a block may take: patience with the change ends where it can no longer win."""
        done = self._course.answers[Arm.A]
        usual = max((a.prompt_s + a.predicted_s for a in done), default=None) if arm is Arm.B else None
        return None if usual is None else PATIENCE * usual + GRACE_S

    def _out(self, arm: Arm, trouble: Trouble) -> str:
        changed = self._engine.replaced()
        if changed is not None or arm is Arm.A:
            raise Lost(changed or trouble)
        if trouble.limit:
            return f"far slower: {trouble.text}"
        return trouble.text

    def _differs(self, arm: Arm, prompt: int, tokens: tuple[int, ...]) -> str:
        """Greedy answers must not depend on a setting of speed."""
        greedy = self._course.greedy
        own, other = greedy.get((arm, prompt)), greedy.get((Arm.B if arm is Arm.A else Arm.A, prompt))
        greedy.setdefault((arm, prompt), tokens)
        if own is not None and own != tokens:
            return (
                "the engine's greedy answer to one prompt is not always the same, so no change can be told to keep it"
            )
        if other is not None and other != tokens:
            at = next((n for n, (a, b) in enumerate(zip(other, tokens, strict=False)) if a != b), len(tokens))
            return f"not of speed alone: the greedy answer differs from token {at + 1} on"
        return ""

    def _cost(self, answer: Answer) -> float:
        """Seconds of the workload's turn (or of its goal's part) at a block's rates.

        What the change does not act on is what was seen before it: it must not decide by its noise.
        """
        work, pace, part = self._pricing.problem.workload, self._base.pace, self._attempt.part
        prompt = work.prompt_tokens / pace.prefill_tps
        reply = work.answer_tokens / pace.decode_tps
        if part is not Goal.DECODE:
            prompt = work.prompt_tokens * answer.prompt_s / max(answer.prompt_n, 1)
        if part is not Goal.PREFILL:
            reply = work.answer_tokens * answer.predicted_s / max(answer.predicted_n, 1)
        parts = {Goal.TURN: prompt + reply, Goal.PREFILL: prompt, Goal.DECODE: reply}
        return max(parts[work.goal], 1e-9)

    def _reason(self, kept: bool, late: bool) -> str:
        found = self._course.result
        if found is None or found.error is None:
            return "no time for more than one pair of blocks" if late else "nothing was measured"
        if kept:
            return f"{found.gain:.1%} faster, beyond the noise of {found.error:.1%}"
        if late:
            return f"{found.gain:+.1%} with a noise of {found.error:.1%}: no time left to decide"
        if found.gain < -found.error:
            return f"{-found.gain:.1%} slower"
        return f"{found.gain:+.1%} with a noise of {found.error:.1%}: less than {LEAST:.0%} beyond doubt"

    def _trial(self, *, kept: bool, reason: str) -> Trial:
        found = self._course.result
        return Trial(
            attempt=self._attempt,
            before=_rates(self._course.answers[Arm.A]),
            after=_rates(self._course.answers[Arm.B]),
            pairs=len(self._course.costs),
            gain=found.gain if found else None,
            error=found.error if found else None,
            peaks=tuple(self._peaks.items()),
            kept=kept,
            reason=reason,
            apart=_apart(self._course.answers[Arm.A], self._attempt.part),
        )


def _apart(answers: list[Answer], part: Goal) -> Apart:
    decode = tuple(a.decode_tps for a in answers if a.decode_tps is not None)
    return blocks_apart(decode, tuple(a.prefill_tps for a in answers if a.prefill_tps is not None), part)


def _rates(answers: list[Answer]) -> Rates | None:
    decode = [a.decode_tps for a in answers if a.decode_tps is not None]
    prefill = [a.prefill_tps for a in answers if a.prefill_tps is not None]
    return Rates(median(decode), median(prefill)) if decode and prefill else None
