"""``moeplan.verified/1``: the shape of a verification as JSON. Changing it means a new schema number."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from emit.json_plan_shape import BandV1, Bytes, Number, PlanV1, SettingsV1, Shape, Text, Value, VerifiedBeforeV1
from planner.plans.verified import Finding


class ComparedV1(Shape):
    term: Text = Field(description="decode, prefill, or a device (or Host) with model, context, compute or peak.")
    unit: Literal["tok/s", "bytes"]
    predicted: BandV1 = Field(description="For the prompt and answer that ran; of bytes, high is the tolerance.")
    observed: float
    within: bool = Field(description="False where it is worse than predicted; better is never out.")


class ChangeV1(Shape):
    setting: Text
    value: Value


class RatesV1(Shape):
    decode_tps: float
    prefill_tps: float


class TrialV1(Shape):
    changes: tuple[ChangeV1, ...]
    settings: SettingsV1
    expected_gain: float = Field(description="Share of the goal's cost that it was expected to save.")
    basis: Text
    before: RatesV1 | None = Field(description="Medians over blocks, without the change.")
    after: RatesV1 | None
    pairs: int
    gain: Number = Field(description="Share of the goal's cost that it saved; negative where it cost; null unmeasured.")
    error: Number = Field(description="About two standard errors of gain.")
    peak_bytes: dict[str, Bytes] = Field(description="Per device, everybody's use together, with the change.")
    kept: bool
    reason: Text


class StepV1(Shape):
    changes: tuple[ChangeV1, ...]
    reason: Text


class AnswerV1(Shape):
    text: Text
    prompt_n: int
    prompt_s: float
    predicted_n: int
    predicted_s: float
    first_s: float = Field(description="From the question to the first token, as a user sees it.")


class BufferV1(Shape):
    device: Text
    kind: Literal["model", "context", "compute", "output"]
    bytes: Bytes


class VerifiedV1(Shape):
    """A plan after the machine has answered."""

    schema_: Literal["moeplan.verified/1"] = Field(default="moeplan.verified/1", alias="schema")
    verdict: Finding
    reason: Text
    when: Text
    engine: Text
    plan: PlanV1 = Field(description="With the settings that were kept.")
    observed: tuple[ComparedV1, ...] = Field(description="Observed against predicted.")
    trials: tuple[TrialV1, ...]
    steps_back: tuple[StepV1, ...] = Field(description="Settings that did not hold, and the safer neighbour taken.")
    answer: AnswerV1 | None
    buffers: tuple[BufferV1, ...] = Field(description="As the engine logged them; empty where it logs none.")
    offloaded_layers: int | None = Field(description="Layers on devices as the engine says; null if it does not.")
    load_s: Number
    peak_rss_bytes: Bytes | None
    major_faults: int | None
    last_lines: tuple[Text, ...] = Field(description="What a dying engine said last.")
    notes: tuple[Text, ...]
    correction: VerifiedBeforeV1 | None = Field(description="What the next plan takes from this.")
    url: Text | None = Field(description="Where it still serves; null if it does not.")
