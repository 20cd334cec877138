"""``moeplan.model/1``: what one GGUF holds, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NotRequired

from emit.json_plan_shape import Bytes, Says, Shape, finite
from emit.model_facts import KV_TYPES, by_role, kv_bytes_per_token
from planner.facts.model import AttentionKind, Layer, Model, Role, Tensor
from planner.facts.routing import Ground, LayerUse, Policy, RoutingStats
from planner.plans.decision import Scalar


class RoleV1(Shape):
    n_tensors: Annotated[int, Says(gt=0)]
    n_bytes: Bytes
    types: Annotated[dict[str, Bytes], Says("ggml type to bytes.")]


class LayerV1(Shape):
    index: int
    attention: AttentionKind
    n_head: int
    n_head_kv: int
    head_k: int
    head_v: int
    window: Annotated[int | None, Says("Sliding window in tokens; null without one.")]
    n_expert_used: int
    nextn: bool
    n_bytes: Bytes
    roles: dict[Role, RoleV1]


class LayerUseV1(Shape):
    layer: int
    n_selections: int
    entropy_bits: float
    effective: Annotated[float, Says("Experts that a uniform router would need for the same entropy.")]
    touched: int
    top_share: Annotated[float, Says("Selections that the most used tenth of the experts takes.")]


class HitCurveV1(Shape):
    policy: Policy
    ground: Annotated[Ground, Says("replay of the sequence, counts alone (a bound), or a prior.")]
    points: Annotated[tuple[tuple[float, float], ...], Says("Share of the expert bytes, hit rate.")]


class RoutingV1(Shape):
    source: str
    method: str
    phase: str
    n_tokens: int
    n_used: int
    expert_bytes: Bytes
    cycle_bytes: Annotated[int, Says("Expert bytes that one token selects.", ge=0)]
    shares: Annotated[tuple[tuple[float, float], ...], Says("Most used share of the experts, share of selections.")]
    overlap: Annotated[tuple[tuple[int, float], ...], Says("Distance in tokens, share of experts selected again.")]
    stability: Annotated[dict[str, float] | None, Says("A fixed set of the first half, scored on the second.")]
    curves: tuple[HitCurveV1, ...]
    layers: tuple[LayerUseV1, ...]


class ModelDetailV1(Shape):
    """What one GGUF holds, all shards together."""

    schema: Literal["moeplan.model/1"]
    path: str
    arch: str
    name: str
    n_layer: int
    n_layer_nextn: int
    n_embd: int
    n_vocab: int
    n_ctx_train: int
    n_expert: int
    n_expert_used: int
    n_ff_exp: int
    n_tensors: int
    file_bytes: Bytes
    expert_bytes: Bytes
    fingerprint: str
    shards: tuple[str, ...]
    attention_known: Annotated[bool, Says("False where the cache rules of this architecture are assumed.")]
    roles: dict[Role, RoleV1]
    layers: tuple[LayerV1, ...]
    kv_bytes_per_token: Annotated[
        dict[str, Bytes],
        Says("By cache type (K and V alike): what one more token of context costs beyond every sliding window."),
    ]
    metadata: dict[str, Scalar]
    notes: tuple[str, ...]
    routing: NotRequired[Annotated[RoutingV1, Says("Which experts are used; only with --routing.")]]


def model_shape(model: Model) -> ModelDetailV1:
    """A model in its JSON shape."""
    per_layer: dict[int, list[Tensor]] = {}
    for tensor in model.tensors:
        if tensor.layer is not None:
            per_layer.setdefault(tensor.layer, []).append(tensor)
    costs = {kind: kv_bytes_per_token(model, kind) for kind in KV_TYPES}
    shape = ModelDetailV1(
        schema="moeplan.model/1",
        path=model.path,
        arch=model.arch,
        name=model.name,
        n_layer=model.n_layer,
        n_layer_nextn=model.n_layer_nextn,
        n_embd=model.n_embd,
        n_vocab=model.n_vocab,
        n_ctx_train=model.n_ctx_train,
        n_expert=model.n_expert,
        n_expert_used=model.n_expert_used,
        n_ff_exp=model.n_ff_exp,
        n_tensors=len(model.tensors),
        file_bytes=model.file_bytes,
        expert_bytes=model.expert_bytes,
        fingerprint=model.fingerprint,
        shards=model.shards,
        attention_known=model.attention_known,
        roles=_roles(model.tensors),
        layers=tuple(_layer(layer, per_layer.get(layer.index, [])) for layer in model.layers),
        kv_bytes_per_token={kind: cost for kind, cost in costs.items() if cost is not None},
        metadata={key: finite(value) for key, value in model.metadata},
        notes=model.notes,
    )
    if model.routing is not None:
        shape["routing"] = _routing(model.routing)
    return shape


def _layer(layer: Layer, tensors: list[Tensor]) -> LayerV1:
    return LayerV1(
        index=layer.index,
        attention=layer.kind,
        n_head=layer.n_head,
        n_head_kv=layer.n_head_kv,
        head_k=layer.head_k,
        head_v=layer.head_v,
        window=layer.window or None,
        n_expert_used=layer.n_expert_used,
        nextn=layer.nextn,
        n_bytes=sum(tensor.n_bytes for tensor in tensors),
        roles=_roles(tensors),
    )


def _roles(tensors: Iterable[Tensor]) -> dict[Role, RoleV1]:
    return {
        role: RoleV1(n_tensors=found.n_tensors, n_bytes=found.n_bytes, types=dict(found.types))
        for role, found in by_role(tensors).items()
    }


def _routing(stats: RoutingStats) -> RoutingV1:
    held, routing = stats.stability, stats.routing
    return RoutingV1(
        source=routing.source,
        method=routing.method,
        phase=stats.phase,
        n_tokens=stats.n_tokens,
        n_used=routing.n_used,
        expert_bytes=stats.expert_bytes,
        cycle_bytes=stats.cycle_bytes,
        shares=stats.shares,
        overlap=stats.overlap,
        stability=None if held is None else {"share": held.share, "learned": held.learned, "fitted": held.fitted},
        curves=tuple(HitCurveV1(policy=c.policy, ground=c.ground, points=c.points) for c in stats.curves),
        layers=tuple(_layer_use(layer) for layer in stats.layers),
    )


def _layer_use(use: LayerUse) -> LayerUseV1:
    return LayerUseV1(
        layer=use.layer,
        n_selections=use.n_selections,
        entropy_bits=use.entropy_bits,
        effective=use.effective,
        touched=use.touched,
        top_share=use.top_share,
    )
