"""What verifying a plan on the engine came to: terms held against the prediction, trials, steps back, a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from planner.facts.observed import Answer, Placement, Verified
from planner.facts.workload import Goal
from planner.plans.plan import Plan
from planner.plans.settings import Settings
from planner.plans.speed import Band


class Finding(StrEnum):
    """``slower``: it ran, under the low end of the prediction; ``failed``: it did not run to its end."""

    VERIFIED = "verified"
    SLOWER = "slower"
    COLLAPSED = "collapsed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure, observed against predicted.

    Args:
        term: ``decode``, ``prefill``, ``turn``, or ``<device> model`` and the like.
        unit: ``tok/s``, ``s`` or ``bytes``.
        predicted: with its band; of bytes the band is the tolerance.
        within: True unless it is worse than the prediction allows; better is never out.
        judged: False if too little was seen to judge it or to learn from it.
    """

    term: str
    unit: str
    predicted: Band
    observed: float
    within: bool
    judged: bool = True


@dataclass(frozen=True, slots=True)
class Attempt:
    """A change that is worth a trial.

    Args:
        changes: ``(setting, value)``.
        settings: the whole, with the change.
        expected: predicted share of the goal's cost that it saves (negative: it costs); None if the prediction does
            not see the change.
        worth: what is hoped for, by which attempts are ordered: the prediction, or what trials elsewhere have found.
        basis: why it is worth a trial.
        part: what it changes: prefill, decode, or both (a turn).
        n_ubatch: the larger one of before and after; a prompt that shows prefill has at least so many tokens.
    """

    changes: tuple[tuple[str, object], ...]
    settings: Settings
    expected: float | None
    worth: float
    basis: str
    part: Goal = Goal.TURN
    n_ubatch: int = 512

    @property
    def words(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.changes)

    @property
    def forecast(self) -> str:
        if self.expected is None:
            return "gain unknown"
        sign = "saves" if self.expected >= 0 else "costs"
        return f"{sign} {abs(self.expected):.1%} by the prediction"


@dataclass(frozen=True, slots=True)
class Forecast:
    """A trial that has not run: the tokens of its prompts, the seconds it takes at least, and whether it would run."""

    attempt: Attempt
    prompt_n: int
    seconds: float
    fits: bool


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What verifying a plan would take, by its predicted rates.

    Args:
        trials: in the order they would run, then those that would not.
        look_s: of a prompt of ``look_n`` tokens, which is as deep as a look goes.
        budget_s: what look and trials may take.
    """

    trials: tuple[Forecast, ...]
    look_n: int
    look_s: float
    budget_s: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Median rates of an arm's blocks, tokens per second."""

    decode_tps: float
    prefill_tps: float


@dataclass(frozen=True, slots=True)
class Trial:
    """A change against the settings before it, tried in interleaved blocks.

    Args:
        pairs: pairs of blocks that counted.
        gain: share of the goal's cost that the change saves (negative: it costs); None if nothing was measured.
        error: about two standard errors of it.
        peaks: ``(device, bytes in use)`` with the change.
        kept: whether it stays; ``reason`` says why or why not.
        apart: fastest over slowest block of the settings before it, by rate.
    """

    attempt: Attempt
    before: Rates | None
    after: Rates | None
    pairs: int
    gain: float | None
    error: float | None
    peaks: tuple[tuple[str, int], ...]
    kept: bool
    reason: str
    apart: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class StepBack:
    """Settings that did not hold, the neighbour taken instead, and why."""

    changes: tuple[tuple[str, object], ...]
    reason: str

    @property
    def words(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.changes)


@dataclass(frozen=True, slots=True)
class Verification:
    """A plan after the machine has answered.

    Args:
        plan: with the settings that were kept.
        reason: one sentence on the verdict.
        compared: observed against predicted, of the plan's own settings and of what replaced them after steps back.
        at: tokens of the prompt that the compared rates are of.
        steady: False if the machine was busy or its rates disagreed, so that no speed was learned.
        depth: tokens of the longest prompt that the kept settings answered; ``deep`` if that is past 8,192 or as far
            as the context goes. A short prompt proves neither headroom nor speed.
        answer: the first answer; None if there was none.
        lines: what a dying engine said last.
        learned: what the next plan takes from this; None if nothing was kept.
        when: local date, ``YYYY-MM-DD``.
        url: where it still serves; None if it does not.
    """

    plan: Plan
    finding: Finding
    reason: str
    when: str
    engine: str
    compared: tuple[Compared, ...] = ()
    trials: tuple[Trial, ...] = ()
    steps: tuple[StepBack, ...] = ()
    at: int | None = None
    steady: bool = True
    depth: int | None = None
    deep: bool = False
    answer: Answer | None = None
    placement: Placement | None = None
    loaded_s: float | None = None
    peak_rss_bytes: int | None = None
    major_faults: int | None = None
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    learned: Verified | None = None
    url: str | None = None

    @property
    def word(self) -> str:
        """The verdict as it is said: a slow run of a machine that was not steady proves nothing."""
        return "inconclusive" if self.finding is Finding.SLOWER and not self.steady else self.finding.value
