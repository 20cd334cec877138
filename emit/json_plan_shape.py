"""``moeplan.plan/1``: the shape of a plan as JSON. Changing it means a new schema number."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from planner.facts.reading import Source
from planner.facts.workload import Goal
from planner.plans.decision import Confidence, Fate
from planner.plans.oracle import Confirmation
from planner.plans.plan import Verdict
from planner.plans.settings import FlashAttn, LoadMode
from planner.plans.speed import Resource


def _unicode(value: object) -> object:
    """A file name that is not UTF-8 (lone surrogates) with its odd bytes as ``\\udcNN``."""
    return value.encode("utf-8", "backslashreplace").decode() if type(value) is str else value


Bytes = Annotated[int, Field(ge=0)]
Number = float | None
Text = Annotated[str, BeforeValidator(_unicode)]
Value = Annotated[str | int | float | bool | None, BeforeValidator(_unicode)]


class Shape(BaseModel):
    """A JSON object. Keys that are not listed are an error; numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelV1(Shape):
    path: Text
    arch: Text
    name: Text
    n_layer: int
    n_expert: int
    n_expert_used: int
    file_bytes: Bytes
    expert_bytes: Bytes
    fingerprint: Text


class WorkloadV1(Shape):
    n_ctx: int | None = Field(description="Asked context; null lets moeplan choose (settings.n_ctx is the choice).")
    n_parallel: int
    prompt_tokens: int
    answer_tokens: int
    goal: Goal


class SettingsV1(Shape):
    n_gpu_layers: int
    n_cpu_moe: int
    override_tensor: tuple[Text, ...] = Field(description="REGEX=BUFFER, first match wins, before n_cpu_moe.")
    moe_cache_mib: int
    n_ubatch: int
    n_batch: int
    type_k: Text
    type_v: Text
    flash_attn: FlashAttn
    n_ctx: int
    n_parallel: int
    load_mode: LoadMode
    threads: int | None
    threads_batch: int | None
    tensor_split: tuple[float, ...]
    devices: tuple[Text, ...]
    prefill_device: Text = Field(description="Where host experts, if any, are computed in prefill: a device id or CPU.")
    decode_device: Text = Field(description="The same in decode.")
    op_offload: bool
    spec_type: Text | None


class DeviceV1(Shape):
    id: Text
    total_bytes: Bytes
    used_before_bytes: Bytes
    model_bytes: Bytes
    context_bytes: Bytes
    compute_bytes: Bytes
    cache_bytes: Bytes
    overhead_bytes: Bytes
    predicted_bytes: Bytes
    headroom_bytes: int


class HostV1(Shape):
    model_bytes: Bytes
    context_bytes: Bytes
    compute_bytes: Bytes
    pinned_bytes: Bytes
    mapped_bytes: Bytes
    predicted_bytes: Bytes = Field(description="Output buffer, prompt cache and checkpoints included.")
    available_bytes: Bytes | None
    headroom_bytes: int | None


class DifferenceV1(Shape):
    device: Text = Field(description="A device id, or Host.")
    term: Literal["model", "context", "compute"]
    engine_bytes: Bytes = Field(description="Whole MiB, rounded down by the engine.")
    predicted_bytes: Bytes = Field(
        description="For llama-fit-params, rounded down likewise: not the plan's own figure."
    )
    residual_bytes: int = Field(description="What the engine needs beyond the prediction.")


class OracleV1(Shape):
    outcome: Confirmation
    build: int | None = Field(description="llama.cpp build that answered, or would have been asked.")
    source: Literal["asked", "stored"] | None = Field(description="Null without an answer.")
    residual_bytes: Bytes | None = Field(description="The largest distance of any figure; null without an answer.")
    reserved_bytes: dict[str, Bytes] = Field(description="Per device: overhead that stands for what was not predicted.")
    differences: tuple[DifferenceV1, ...]
    reason: Text | None = Field(description="Why there is no answer.")


class MemoryV1(Shape):
    devices: tuple[DeviceV1, ...]
    host: HostV1
    oracle: OracleV1 | None = Field(
        default=None, description="The engine's word for the same settings; null where it was not to be asked."
    )


class BandV1(Shape):
    low: Number
    mid: Number
    high: Number


class SpeedV1(Shape):
    decode_tps: BandV1
    prefill_tps: BandV1
    turn_s: BandV1
    bound_by: Resource


class EvidenceV1(Shape):
    fact: Text
    value: Value
    unit: Text
    source: Source


class AlternativeV1(Shape):
    value: Value
    outcome: Fate
    by: Number = Field(description="Bytes short, or the factor by which it is slower; null where neither applies.")
    detail: Text


class DecisionV1(Shape):
    rule: Text
    setting: Text
    flag: Text | None = Field(description="llama.cpp's flag; null for a choice that is not a flag.")
    value: Value
    headline: Text
    confidence: Confidence
    lossless: bool
    because: tuple[EvidenceV1, ...] = Field(min_length=1)
    alternatives: tuple[AlternativeV1, ...]


class ExchangeV1(Shape):
    change: Text
    effect: Text


class CautionV1(Shape):
    code: Text
    message: Text


class ShortfallV1(Shape):
    device: Text
    needed_bytes: Bytes
    available_bytes: int


class RefusalV1(Shape):
    shortfalls: tuple[ShortfallV1, ...]
    nearest: SettingsV1 | None


class LintV1(Shape):
    code: Text
    flag: Text
    message: Text
    fix: Text


class VerifiedBeforeV1(Shape):
    when: Text = Field(description="Local date of the last verified run, YYYY-MM-DD.")
    exact: bool = Field(description="True if this model and workload were verified, not only its family of models.")
    runs: int
    devices: tuple[Text, ...] = Field(description="The ratios hold for settings on these devices.")
    decode_ratio: Number = Field(description="Observed over raw predicted rate, within bounds; null if never seen.")
    prefill_ratio: Number
    bounded: bool
    extra_bytes: dict[str, Bytes] = Field(description="Per device, needed beyond the prediction.")
    kept: dict[str, Text] = Field(description="Settings that differ from the planner's own choice.")


class PlanV1(Shape):
    """A plan, or the same for a user's own flags (then with ``source`` and ``lint``)."""

    schema_: Literal["moeplan.plan/1"] = Field(default="moeplan.plan/1", alias="schema")
    source: Literal["user flags"] | None = None
    verdict: Verdict
    model: ModelV1
    workload: WorkloadV1
    settings: SettingsV1
    argv: tuple[Text, ...]
    memory: MemoryV1
    speed: SpeedV1
    decisions: tuple[DecisionV1, ...]
    exchange: tuple[ExchangeV1, ...]
    warnings: tuple[CautionV1, ...]
    refusal: RefusalV1 | None
    lint: tuple[LintV1, ...] | None = None
    verified: VerifiedBeforeV1 | None = Field(
        default=None, description="What earlier verified runs taught this plan; left out without any."
    )
