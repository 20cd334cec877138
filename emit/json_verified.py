"""A verification in the shape of ``moeplan.verified/1``."""

from __future__ import annotations

from emit.json_plan import plan_shape, settings_shape, verified_shape
from emit.json_plan_shape import BandV1
from emit.json_verified_shape import (
    AnswerV1,
    BufferV1,
    ChangeV1,
    ComparedV1,
    RatesV1,
    StepV1,
    TrialV1,
    VerifiedV1,
)
from planner.facts.model import Model
from planner.facts.observed import Answer
from planner.plans.verified import Compared, Rates, Trial, Verification


def verification_shape(found: Verification) -> VerifiedV1:
    """A verification in its JSON shape. Raises EngineError where the settings cannot be spelled."""
    placement = found.placement
    return VerifiedV1(
        schema="moeplan.verified/1",
        verdict=found.finding,
        reason=found.reason,
        when=found.when,
        engine=found.engine,
        plan=plan_shape(found.plan),
        observed=tuple(map(_compared, found.compared)),
        trials=tuple(_trial(item, found.plan.model) for item in found.trials),
        steps_back=tuple(StepV1(changes=_changes(item.changes), reason=item.reason) for item in found.steps),
        depth_tokens=found.depth,
        deep=found.deep,
        steady=found.steady,
        answer=_answer(found.answer) if found.answer else None,
        buffers=tuple(
            BufferV1(device=b.device, kind=b.kind, bytes=b.n_bytes)  # type: ignore[typeddict-item]  # one of four
            for b in (placement.buffers if placement else ())
        ),
        offloaded_layers=placement.offloaded[0] if placement and placement.offloaded else None,
        load_s=found.loaded_s,
        peak_rss_bytes=found.peak_rss_bytes,
        major_faults=found.major_faults,
        last_lines=found.lines,
        notes=found.notes,
        correction=verified_shape(found.learned) if found.learned else None,
        url=found.url,
    )


def _compared(item: Compared) -> ComparedV1:
    band = BandV1(low=item.predicted.low, mid=item.predicted.mid, high=item.predicted.high)
    return ComparedV1(
        term=item.term,
        unit=item.unit,  # type: ignore[typeddict-item]  # one of two
        predicted=band,
        observed=item.observed,
        within=item.within,
        judged=item.judged,
    )


def _trial(item: Trial, model: Model) -> TrialV1:
    return TrialV1(
        changes=_changes(item.attempt.changes),
        settings=settings_shape(item.attempt.settings, model),
        expected_gain=item.attempt.expected,
        basis=item.attempt.basis,
        before=_rates(item.before),
        after=_rates(item.after),
        pairs=item.pairs,
        gain=item.gain,
        error=item.error,
        peak_bytes=dict(item.peaks),
        kept=item.kept,
        reason=item.reason,
    )


def _changes(changes: tuple[tuple[str, object], ...]) -> tuple[ChangeV1, ...]:
    return tuple(
        ChangeV1(setting=name, value=value if isinstance(value, str | int | float | bool | None) else str(value))
        for name, value in changes
    )


def _rates(rates: Rates | None) -> RatesV1 | None:
    return None if rates is None else RatesV1(decode_tps=rates.decode_tps, prefill_tps=rates.prefill_tps)


def _answer(answer: Answer) -> AnswerV1:
    return AnswerV1(
        text=answer.text,
        prompt_n=answer.prompt_n,
        prompt_s=answer.prompt_s,
        predicted_n=answer.predicted_n,
        predicted_s=answer.predicted_s,
        first_s=answer.first_s,
    )
