"""The outcome of a verification: compared terms, the verdict, the plan with what was kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from planner import units
from planner.errors import OutputError
from planner.facts.reading import Source
from planner.plans.decision import Confidence, Decision, Evidence
from planner.plans.verified import Compared, Finding, StepBack, Trial, Verification
from planner.verification import looking
from planner.verification.engine import Kind
from planner.verify import compare, steady
from planner.verify.budget import LEAST_PROMPT
from planner.verify.learn import changed
from planner.verify.steady import Apart, Doubts

if TYPE_CHECKING:
    from planner.facts.observed import Verified
    from planner.plans.plan import Candidate, Plan
    from planner.search import Pricing
    from planner.verification.engine import Trouble
    from planner.verification.looking import Seen
    from probes.host import Host


@dataclass(frozen=True, slots=True)
class Report:
    """What is known after the looks at the settings that held; ``busy``: share of the CPUs that others took before."""

    plan: Plan
    engine: str
    seen: Seen
    pricing: Pricing
    busy: float | None

    def made(
        self,
        host: Host,
        kept: Candidate,
        trials: tuple[Trial, ...],
        steps: tuple[StepBack, ...],
        notes: tuple[str, ...],
    ) -> Verification:
        """The verification of a plan that answered; what it teaches is kept on this computer."""
        from time import strftime

        seen, live = self.seen, self.seen.live
        samples, predicted = live.watch.samples(), seen.predicted(self.pricing)
        compared = (
            *compare.speeds(predicted, seen.measured),
            *compare.buffers(predicted, seen.placement),
            *compare.peaks(predicted, samples),
        )
        depth = seen.depth if live.candidate.memory == kept.memory else 0
        deep = looking.deep(seen.slot, depth)
        finding, reason = _finding(compared)
        doubts, spreads = self._steadiness(trials)
        if doubts is not None:
            reason = f"{doubts.cause}; {reason}" if finding is Finding.SLOWER else reason
            notes = (f"{', '.join(doubts.reasons)}: the speed seen here is not learned", *notes)
        reason = reason if deep else f"{reason}; {_shallow(seen.slot, depth)}"
        learned, unkept = self._learned(host, kept, compared, finding, spreads, depth)
        faults = [s.major_faults for s in samples if s.major_faults is not None]
        return Verification(
            plan=with_kept(self.plan, kept, trials, steps),
            finding=finding,
            reason=reason,
            when=strftime("%Y-%m-%d"),
            engine=self.engine,
            compared=compared,
            trials=trials,
            steps=steps,
            at=seen.depth,
            steady=doubts is None,
            depth=depth,
            deep=deep,
            answer=seen.answer,
            placement=seen.placement,
            loaded_s=live.session.loaded_s,
            peak_rss_bytes=max((s.rss_bytes for s in samples if s.rss_bytes is not None), default=None),
            major_faults=faults[-1] if faults else None,
            notes=(*notes, *_unjudged(compared, seen.depth), *unkept),
            learned=learned,
        )

    def _learned(
        self,
        host: Host,
        kept: Candidate,
        compared: tuple[Compared, ...],
        finding: Finding,
        spreads: Apart | None,
        depth: int,
    ) -> tuple[Verified | None, tuple[str, ...]]:
        """What the next plan takes from this, or why it takes nothing."""
        from planner.verification.learning import learn

        if finding is Finding.FAILED:
            return None, ()
        try:
            return learn(host, self.plan, kept, compared, finding, spreads=spreads, depth=depth), ()
        except OutputError as error:
            return None, (str(error),)

    def _steadiness(self, trials: tuple[Trial, ...]) -> tuple[Doubts | None, Apart | None]:
        """What speaks against learning the speed; without that the bands that the run justifies."""
        apart, faded = steady.widest(trials), self.seen.faded(self.pricing)
        doubts = steady.doubts(self.busy, steady.others(self.seen.live.watch.samples()), apart, faded)
        return doubts, None if doubts else steady.spreads(apart, faded)


def failed(
    plan: Plan,
    engine: str,
    trouble: Trouble,
    trials: tuple[Trial, ...],
    steps: tuple[StepBack, ...],
    notes: tuple[str, ...],
) -> Verification:
    """The verification of a plan that did not hold; nothing is learned from it."""
    from time import strftime

    finding = Finding.COLLAPSED if trouble.kind is Kind.COLLAPSE else Finding.FAILED
    return Verification(
        plan, finding, trouble.text, strftime("%Y-%m-%d"), engine,
        trials=trials, steps=steps, notes=notes, lines=trouble.lines,
    )  # fmt: skip


def _finding(compared: tuple[Compared, ...]) -> tuple[Finding, str]:
    slow = [c for c in compared if c.unit == "tok/s" and not c.within]
    if slow:
        worst = min(slow, key=lambda c: c.observed / c.predicted.low)
        words = f"{worst.term} runs at {worst.observed:,.1f} tok/s, at least {worst.predicted.low:,.1f} were predicted"
        return Finding.SLOWER, words
    if not any(c.unit == "tok/s" and c.judged for c in compared):
        return Finding.FAILED, "the engine told no time of its answer: nothing was measured"
    return Finding.VERIFIED, "it answers as fast as predicted, or faster"


def _unjudged(compared: tuple[Compared, ...], depth: int) -> tuple[str, ...]:
    """That a prompt was too short to tell how fast prefill is."""
    if all(item.judged for item in compared):
        return ()
    few = f"prefill of {units.counted(depth, 'token')} is shown"
    return (f"{few}, not judged or learned: that takes a prompt of {LEAST_PROMPT}",)


def _shallow(slot: int, depth: int) -> str:
    """That a short prompt proves neither headroom nor speed."""
    goal, were = looking.goal(slot), units.counted(depth, "token was", "tokens were")
    seen = were if depth else "what was kept was not"
    deep = f"past {goal:,} tokens" if goal == looking.PAST else f"of {goal:,} tokens, the whole context,"
    return f"no prompt {deep} was looked at ({seen}): longer ones may not hold"


def with_kept(plan: Plan, kept: Candidate, trials: tuple[Trial, ...], steps: tuple[StepBack, ...]) -> Plan:
    """The plan with the settings that stood; their decisions say what changed them."""
    reasons: dict[str, tuple[str, Evidence]] = {}
    for step in steps:
        evidence = Evidence("stepped back", step.reason, "", Source.MEASURED)
        reasons |= {name: (f"stepped back: {step.reason}", evidence) for name, _ in step.changes}
    for trial in trials:
        if trial.kept:
            evidence = Evidence("share of the time saved", round(trial.gain or 0.0, 4), "", Source.MEASURED)
            reasons |= {name: (f"tried here: {trial.reason}", evidence) for name, _ in trial.attempt.changes}
    values = dict(changed(plan.chosen.settings, kept.settings))
    decisions = tuple(_redecided(item, values, reasons) for item in plan.decisions)
    return replace(plan, chosen=kept, decisions=decisions)


def _redecided(item: Decision, values: dict[str, object], reasons: dict[str, tuple[str, Evidence]]) -> Decision:
    if item.setting not in values or item.setting not in reasons:
        return item
    headline, evidence = reasons[item.setting]
    value = values[item.setting]
    shown = value if isinstance(value, str | int | float | bool | None) else str(value)
    return replace(
        item,
        value=shown,
        headline=f"{headline}; planned: {item.value}",
        confidence=Confidence.MEASURED,
        because=(evidence,),
        alternatives=(),
    )
