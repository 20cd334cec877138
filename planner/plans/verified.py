"""What verifying a plan on the engine came to: terms held against the prediction, trials, steps back, a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from planner.facts.observed import Answer, Placement, Verified
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
    """

    term: str
    unit: str
    predicted: Band
    observed: float
    within: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """A change that is worth a trial.

    Args:
        changes: ``(setting, value)``.
        settings: the whole, with the change.
        gain: expected share of the goal's cost that it saves.
        basis: where that expectation comes from.
        needs_tokens: prompt that a block needs for the change to show.
    """

    changes: tuple[tuple[str, object], ...]
    settings: Settings
    gain: float
    basis: str
    needs_tokens: int = 0

    @property
    def words(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.changes)


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
        answer: the first answer; None if there was none.
        lines: what a dying engine said last.
        learned: what the next plan takes from this; None if nothing was kept.
        when: local date, ``YYYY-MM-DD``.
        url: where it still serves; None if it does not.
        port: where the user wants it to serve; None leaves the command's own.
    """

    plan: Plan
    finding: Finding
    reason: str
    when: str
    engine: str
    compared: tuple[Compared, ...] = ()
    trials: tuple[Trial, ...] = ()
    steps: tuple[StepBack, ...] = ()
    answer: Answer | None = None
    placement: Placement | None = None
    loaded_s: float | None = None
    peak_rss_bytes: int | None = None
    major_faults: int | None = None
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    learned: Verified | None = None
    url: str | None = None
    port: int | None = None
