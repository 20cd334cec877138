"""A plan in the shape of ``moeplan.plan/1``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from emit import argv
from emit.flag_spell import flag_of
from emit.json_plan_shape import (
    AlternativeV1,
    BandV1,
    CautionV1,
    DecisionV1,
    DeviceV1,
    DifferenceV1,
    EvidenceV1,
    ExchangeV1,
    HostV1,
    LintV1,
    MemoryV1,
    ModelV1,
    OracleV1,
    PlanV1,
    RefusalV1,
    SettingsV1,
    ShortfallV1,
    SpeedV1,
    VerifiedBeforeV1,
    WorkloadV1,
    finite,
)
from planner.facts.model import Model
from planner.plans.decision import Decision
from planner.plans.memory import DeviceMemory, HostMemory, total
from planner.plans.oracle import Oracle
from planner.plans.plan import Lint, Plan, Refusal, Shortfall
from planner.plans.settings import Settings
from planner.plans.speed import Band, Speed

if TYPE_CHECKING:
    from planner.facts.observed import Verified


def plan_shape(plan: Plan) -> PlanV1:
    """A plan in its JSON shape. Raises EngineError where the settings cannot be spelled."""
    model, work = plan.model, plan.workload
    flags = {item.setting: item.flag for item in reversed(argv.flags(plan))}
    return PlanV1(
        schema="moeplan.plan/1",
        source="user flags" if plan.lint is not None else None,
        verdict=plan.verdict,
        model=_model(model),
        workload=WorkloadV1(
            n_ctx=work.n_ctx,
            n_parallel=work.n_parallel,
            prompt_tokens=work.prompt_tokens,
            answer_tokens=work.answer_tokens,
            goal=work.goal,
        ),
        settings=settings_shape(plan.chosen.settings, model),
        argv=argv.argv(plan),
        memory=MemoryV1(
            devices=tuple(map(_device, plan.chosen.memory.devices)),
            host=_host(plan.chosen.memory.host),
            oracle=_oracle(plan.oracle) if plan.oracle else None,
        ),
        speed=_speed(plan.chosen.speed),
        decisions=tuple(_decision(item, flags.get(item.setting)) for item in plan.decisions),
        exchange=tuple(ExchangeV1(change=item.change, effect=item.effect) for item in plan.exchange),
        warnings=tuple(CautionV1(code=item.code, message=item.message) for item in argv.cautions(plan)),
        refusal=_refusal(plan.refusal, model) if plan.refusal else None,
        lint=None if plan.lint is None else tuple(map(_lint, plan.lint)),
        verified=verified_shape(plan.verified) if plan.verified else None,
    )


def compute_devices(settings: Settings, model: Model) -> tuple[str, str]:
    """Where experts are computed in prefill and in decode: a device id, or ``CPU``.

    A batch of 32 tokens or more goes to the first device whose link copies host experts, unless op offload
    is off (ggml/src/ggml-backend.cpp:968-975, b11312). One token's host experts are computed where they
    are, unless a cache on the GPU serves them.
    """
    if not settings.devices or not settings.n_gpu_layers:
        return "CPU", "CPU"
    first = settings.devices[0]
    overridden = any(buffer == "CPU" for _, buffer in settings.override_tensor)
    if not (settings.n_cpu_moe or overridden or settings.n_gpu_layers <= model.n_layer):
        return first, first
    prefill = first if settings.op_offload and settings.n_ubatch >= 32 else "CPU"
    return prefill, first if settings.moe_cache_mib else "CPU"


def _model(model: Model) -> ModelV1:
    return ModelV1(
        path=model.path,
        arch=model.arch,
        name=model.name,
        n_layer=model.n_layer,
        n_expert=model.n_expert,
        n_expert_used=model.n_expert_used,
        file_bytes=model.file_bytes,
        expert_bytes=model.expert_bytes,
        fingerprint=model.fingerprint,
    )


def verified_shape(verified: Verified) -> VerifiedBeforeV1:
    """What verified runs teach, in its JSON shape."""
    return VerifiedBeforeV1(
        when=verified.when,
        exact=verified.exact,
        slower=verified.slower,
        runs=verified.runs,
        devices=verified.devices,
        decode_ratio=verified.decode_ratio,
        prefill_ratio=verified.prefill_ratio,
        bounded=verified.bounded,
        extra_bytes=dict(verified.extra),
        kept=dict(verified.kept),
        depth_tokens=verified.depth,
    )


def settings_shape(settings: Settings, model: Model) -> SettingsV1:
    """Settings in their JSON shape."""
    prefill, decode = compute_devices(settings, model)
    return SettingsV1(
        n_gpu_layers=settings.n_gpu_layers,
        n_cpu_moe=settings.n_cpu_moe,
        override_tensor=tuple(f"{pattern}={buffer}" for pattern, buffer in settings.override_tensor),
        moe_cache_mib=settings.moe_cache_mib,
        n_ubatch=settings.n_ubatch,
        n_batch=settings.n_batch,
        type_k=settings.type_k,
        type_v=settings.type_v,
        flash_attn=settings.flash_attn,
        n_ctx=settings.n_ctx,
        n_parallel=settings.n_parallel,
        load_mode=settings.load_mode,
        threads=settings.threads,
        threads_batch=settings.threads_batch,
        tensor_split=tuple(map(float, settings.tensor_split)),
        devices=settings.devices,
        prefill_device=prefill,
        decode_device=decode,
        op_offload=settings.op_offload,
        spec_type=settings.spec_type,
    )


def _device(memory: DeviceMemory) -> DeviceV1:
    return DeviceV1(
        id=memory.id,
        total_bytes=memory.total_bytes,
        used_before_bytes=memory.used_before_bytes,
        model_bytes=total(memory.model),
        context_bytes=total(memory.context),
        compute_bytes=total(memory.compute),
        cache_bytes=total(memory.cache),
        overhead_bytes=total(memory.overhead),
        predicted_bytes=memory.predicted_bytes,
        headroom_bytes=memory.headroom_bytes,
    )


def _host(memory: HostMemory) -> HostV1:
    return HostV1(
        model_bytes=total(memory.model),
        context_bytes=total(memory.context),
        compute_bytes=total(memory.compute),
        pinned_bytes=memory.pinned_bytes,
        mapped_bytes=memory.mapped_bytes,
        predicted_bytes=memory.predicted_bytes,
        available_bytes=memory.available_bytes,
        headroom_bytes=memory.headroom_bytes,
    )


def _oracle(oracle: Oracle) -> OracleV1:
    answered = bool(oracle.differences)
    return OracleV1(
        outcome=oracle.outcome,
        build=oracle.build,
        source=("stored" if oracle.stored else "asked") if answered else None,
        residual_bytes=oracle.residual_bytes if answered else None,
        reserved_bytes=dict(oracle.reserved),
        differences=tuple(
            DifferenceV1(
                device=item.device,
                term=cast(Literal["model", "context", "compute"], item.term),
                engine_bytes=item.engine_bytes,
                predicted_bytes=item.predicted_bytes,
                residual_bytes=item.residual_bytes,
            )
            for item in oracle.differences
        ),
        reason=oracle.reason or None,
    )


def _speed(speed: Speed) -> SpeedV1:
    return SpeedV1(
        decode_tps=_band(speed.decode_tps),
        prefill_tps=_band(speed.prefill_tps),
        turn_s=_band(speed.turn_s),
        bound_by=speed.bound_by,
    )


def _band(band: Band) -> BandV1:
    return BandV1(low=_number(band.low), mid=_number(band.mid), high=_number(band.high))


def _number(value: float | None) -> float | None:
    """Python takes an int for a float; JSON readers that do not get ``1.0``."""
    return None if value is None else finite(float(value))


def _decision(item: Decision, printed: str | None) -> DecisionV1:
    return DecisionV1(
        rule=item.rule,
        setting=item.setting,
        flag=printed or flag_of(item.setting),
        value=finite(item.value),
        headline=item.headline,
        confidence=item.confidence,
        lossless=item.lossless,
        because=tuple(
            EvidenceV1(fact=e.fact, value=finite(e.value), unit=e.unit, source=e.source) for e in item.because
        ),
        alternatives=tuple(
            AlternativeV1(value=finite(a.value), outcome=a.outcome, by=_number(a.by), detail=a.detail)
            for a in item.alternatives
        ),
    )


def _refusal(refusal: Refusal, model: Model) -> RefusalV1:
    return RefusalV1(
        shortfalls=tuple(map(_shortfall, refusal.shortfalls)),
        nearest=settings_shape(refusal.nearest.settings, model) if refusal.nearest else None,
    )


def _shortfall(item: Shortfall) -> ShortfallV1:
    return ShortfallV1(device=item.device, needed_bytes=item.needed_bytes, available_bytes=item.available_bytes)


def _lint(item: Lint) -> LintV1:
    return LintV1(code=item.code, flag=item.flag, message=item.message, fix=item.fix)
