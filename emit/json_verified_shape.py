"""``moeplan.verified/1``: the shape of a verification as JSON. Changing it means a new schema number."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from emit.json_plan_shape import BandV1, Bytes, Number, PlanV1, Says, SettingsV1, Shape, VerifiedBeforeV1
from planner.plans.decision import Scalar
from planner.plans.verified import Finding


class ComparedV1(Shape):
    term: Annotated[str, Says("decode, prefill, or a device (or Host) with model, context, compute or peak.")]
    unit: Literal["tok/s", "bytes"]
    predicted: Annotated[BandV1, Says("For the prompt and answer that ran; of bytes, high is the tolerance.")]
    observed: float
    within: Annotated[bool, Says("False where it is worse than predicted; better is never out.")]
    judged: NotRequired[Annotated[bool, Says("False where it only shows: prefill of under 128 tokens tells no rate.")]]


class ChangeV1(Shape):
    setting: str
    value: Scalar


class RatesV1(Shape):
    decode_tps: float
    prefill_tps: float


class TrialV1(Shape):
    changes: tuple[ChangeV1, ...]
    settings: SettingsV1
    expected_gain: Annotated[Number, Says("Predicted share of the goal's cost that it saves; null where not seen.")]
    basis: str
    before: Annotated[RatesV1 | None, Says("Medians over blocks, without the change.")]
    after: RatesV1 | None
    pairs: int
    gain: Annotated[Number, Says("Share of the goal's cost that it saved; negative where it cost; null unmeasured.")]
    error: Annotated[Number, Says("About two standard errors of gain.")]
    peak_bytes: Annotated[dict[str, Bytes], Says("Per device, everybody's use together, with the change.")]
    kept: bool
    reason: str


class StepV1(Shape):
    changes: tuple[ChangeV1, ...]
    reason: str


class AnswerV1(Shape):
    text: str
    prompt_n: int
    prompt_s: float
    predicted_n: int
    predicted_s: float
    first_s: Annotated[float, Says("From the question to the first token, as a user sees it.")]


class BufferV1(Shape):
    device: str
    kind: Literal["model", "context", "compute", "output"]
    bytes: Bytes


class VerifiedV1(Shape):
    """A plan after the machine has answered."""

    schema: Literal["moeplan.verified/1"]
    verdict: Finding
    reason: str
    when: str
    engine: str
    plan: Annotated[PlanV1, Says("With the settings that were kept.")]
    observed: Annotated[tuple[ComparedV1, ...], Says("Observed against predicted.")]
    trials: tuple[TrialV1, ...]
    steps_back: Annotated[tuple[StepV1, ...], Says("Settings that did not hold, and the safer neighbour taken.")]
    depth_tokens: Annotated[int | None, Says("The longest prompt that the kept settings answered.")]
    deep: Annotated[bool, Says("Whether that is past 8,192 tokens, or as far as the context goes.")]
    steady: NotRequired[
        Annotated[
            bool, Says("False where others used the machine or its rates disagreed: slower is inconclusive then.")
        ]
    ]
    answer: AnswerV1 | None
    buffers: Annotated[tuple[BufferV1, ...], Says("As the engine logged them; empty where it logs none.")]
    offloaded_layers: Annotated[int | None, Says("Layers on devices as the engine says; null if it does not.")]
    load_s: Number
    peak_rss_bytes: Bytes | None
    major_faults: int | None
    last_lines: Annotated[tuple[str, ...], Says("What a dying engine said last.")]
    notes: tuple[str, ...]
    correction: Annotated[VerifiedBeforeV1 | None, Says("What the next plan takes from this.")]
    url: Annotated[str | None, Says("Where it still serves; null if it does not.")]
