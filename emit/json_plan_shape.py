"""``moeplan.plan/1``: the shape of a plan as JSON. Changing it means a new schema number.

Writing needs these types only for mypy, so importing them costs no pydantic: docs/decisions/006. A new key is a line
in its class here, an argument where the object is built (mypy demands it), and ``python docs/generate.py``. A key that
older plans lack is ``NotRequired``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, NotRequired, TypeVar

from typing_extensions import TypedDict  # pydantic refuses typing's own before Python 3.12

from planner.facts.reading import Source
from planner.facts.workload import Goal
from planner.plans.decision import Confidence, Fate, Scalar
from planner.plans.oracle import Confirmation
from planner.plans.plan import Verdict
from planner.plans.settings import FlashAttn, LoadMode
from planner.plans.speed import Resource


class Says:
    """``pydantic.Field(**what)`` for a key, made only when pydantic asks.

    It does so through ``annotated_types.GroupedMetadata``, a protocol: an object with this attribute is replaced by
    what it yields.
    """

    __is_annotated_types_grouped_metadata__: Final = True

    def __init__(self, description: str | None = None, **bounds: int) -> None:
        self._what: dict[str, Any] = {"description": description, **bounds}

    def __iter__(self) -> Iterator[object]:
        from pydantic import Field

        yield Field(**self._what)


Bytes = Annotated[int, Says(ge=0)]
Number = float | None
_T = TypeVar("_T")


class Shape(TypedDict):
    """A JSON object. Keys that are not listed are an error; numbers are finite."""


# Not in the class, where mypy takes it for a key.
Shape.__pydantic_config__ = {"extra": "forbid", "allow_inf_nan": False}  # type: ignore[attr-defined]


def finite(value: _T) -> _T | None:
    """The value itself; None for NaN and infinity, which JSON has not."""
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


class ModelV1(Shape):
    path: str
    arch: str
    name: str
    n_layer: int
    n_expert: int
    n_expert_used: int
    file_bytes: Bytes
    expert_bytes: Bytes
    fingerprint: str


class WorkloadV1(Shape):
    n_ctx: Annotated[int | None, Says("Asked context; null lets moeplan choose (settings.n_ctx is the choice).")]
    n_parallel: int
    prompt_tokens: int
    answer_tokens: int
    goal: Goal


class SettingsV1(Shape):
    n_gpu_layers: int
    n_cpu_moe: int
    override_tensor: Annotated[tuple[str, ...], Says("REGEX=BUFFER, first match wins, before n_cpu_moe.")]
    moe_cache_mib: int
    n_ubatch: int
    n_batch: int
    type_k: str
    type_v: str
    flash_attn: FlashAttn
    n_ctx: int
    n_parallel: int
    load_mode: LoadMode
    threads: int | None
    threads_batch: int | None
    tensor_split: tuple[float, ...]
    devices: tuple[str, ...]
    prefill_device: Annotated[str, Says("Where host experts, if any, are computed in prefill: a device id or CPU.")]
    decode_device: Annotated[str, Says("The same in decode.")]
    op_offload: bool
    spec_type: str | None


class DeviceV1(Shape):
    id: str
    total_bytes: Bytes
    used_before_bytes: Bytes
    model_bytes: Bytes
    context_bytes: Bytes
    compute_bytes: Bytes
    cache_bytes: Bytes
    overhead_bytes: Bytes
    predicted_bytes: Bytes
    headroom_bytes: Annotated[
        int,
        Says("What stays free: total - used before - predicted; of a device that shares RAM the host's, if less."),
    ]


class HostV1(Shape):
    model_bytes: Bytes
    context_bytes: Bytes
    compute_bytes: Bytes
    pinned_bytes: Bytes
    mapped_bytes: Bytes
    predicted_bytes: Annotated[Bytes, Says("Output buffer, prompt cache and checkpoints included.")]
    available_bytes: Bytes | None
    headroom_bytes: Annotated[
        int | None,
        Says("Available - predicted, less what devices that share RAM take; tables that are read lazily left out."),
    ]


class DifferenceV1(Shape):
    device: Annotated[str, Says("A device id, or Host.")]
    term: Literal["model", "context", "compute"]
    engine_bytes: Annotated[Bytes, Says("Whole MiB, rounded down by the engine.")]
    predicted_bytes: Annotated[Bytes, Says("For llama-fit-params, rounded down likewise: not the plan's own figure.")]
    residual_bytes: Annotated[int, Says("What the engine needs beyond the prediction.")]


class OracleV1(Shape):
    outcome: Confirmation
    build: Annotated[int | None, Says("llama.cpp build that answered, or would have been asked.")]
    source: Annotated[Literal["asked", "stored"] | None, Says("Null without an answer.")]
    residual_bytes: Annotated[Bytes | None, Says("The largest distance of any figure; null without an answer.")]
    reserved_bytes: Annotated[dict[str, Bytes], Says("Per device: overhead that stands for what was not predicted.")]
    differences: tuple[DifferenceV1, ...]
    reason: Annotated[str | None, Says("Why there is no answer.")]


class MemoryV1(Shape):
    devices: tuple[DeviceV1, ...]
    host: HostV1
    oracle: NotRequired[
        Annotated[OracleV1 | None, Says("The engine's word for the same settings; null where it was not to be asked.")]
    ]


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
    fact: str
    value: Scalar
    unit: str
    source: Source


class AlternativeV1(Shape):
    value: Scalar
    outcome: Fate
    by: Annotated[Number, Says("Bytes short, or the factor by which it is slower; null where neither applies.")]
    detail: str


class DecisionV1(Shape):
    rule: str
    setting: str
    flag: Annotated[str | None, Says("llama.cpp's flag; null for a choice that is not a flag.")]
    value: Scalar
    headline: str
    confidence: Confidence
    lossless: bool
    because: Annotated[tuple[EvidenceV1, ...], Says(min_length=1)]
    alternatives: tuple[AlternativeV1, ...]


class ExchangeV1(Shape):
    change: str
    effect: str


class CautionV1(Shape):
    code: str
    message: str


class ShortfallV1(Shape):
    device: str
    needed_bytes: Bytes
    available_bytes: int


class RefusalV1(Shape):
    shortfalls: tuple[ShortfallV1, ...]
    nearest: SettingsV1 | None


class LintV1(Shape):
    code: str
    flag: str
    message: str
    fix: Annotated[
        str | None, Says("Flags to write instead; empty: leave the flag out; null: no flag is known to help.")
    ]


class VerifiedBeforeV1(Shape):
    when: Annotated[str, Says("Local date of the last verified run, YYYY-MM-DD.")]
    exact: Annotated[bool, Says("True if this model and workload were verified, not only its family of models.")]
    slower: NotRequired[Annotated[bool, Says("True if the last run was slower than predicted: it verified nothing.")]]
    runs: Annotated[int, Says("Runs that the ratios come from; what taught no speed is none of them.")]
    devices: Annotated[tuple[str, ...], Says("The ratios hold for settings on these devices.")]
    decode_ratio: Annotated[Number, Says("Observed over raw predicted rate, within bounds; null if never seen.")]
    prefill_ratio: Number
    bounded: bool
    extra_bytes: Annotated[dict[str, Bytes], Says("Per device, needed beyond the prediction.")]
    kept: Annotated[dict[str, str], Says("Settings that differ from the planner's own choice.")]
    depth_tokens: NotRequired[Annotated[int | None, Says("The longest prompt that the last run answered.")]]


class PlanV1(Shape):
    """A plan, or the same for a user's own flags (then with ``source`` and ``lint``)."""

    schema: Literal["moeplan.plan/1"]
    source: NotRequired[Literal["user flags"] | None]
    verdict: Verdict
    model: ModelV1
    workload: WorkloadV1
    settings: SettingsV1
    argv: tuple[str, ...]
    memory: MemoryV1
    speed: SpeedV1
    decisions: tuple[DecisionV1, ...]
    exchange: tuple[ExchangeV1, ...]
    warnings: tuple[CautionV1, ...]
    refusal: RefusalV1 | None
    lint: NotRequired[tuple[LintV1, ...] | None]
    verified: NotRequired[Annotated[VerifiedBeforeV1 | None, Says("What earlier verified runs taught this plan.")]]
