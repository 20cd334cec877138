"""``moeplan.model/1``: what one GGUF holds, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from pydantic import Field

from emit.json_plan_shape import Bytes, Shape, Text, Value
from emit.model_facts import KV_TYPES, by_role, kv_bytes_per_token
from planner.facts.model import AttentionKind, Layer, Model, Role, Tensor
from planner.facts.routing import Ground, Policy, RoutingStats


class RoleV1(Shape):
    n_tensors: Annotated[int, Field(gt=0)]
    n_bytes: Bytes
    types: dict[Text, Bytes] = Field(description="ggml type to bytes.")


class LayerV1(Shape):
    index: int
    attention: AttentionKind
    n_head: int
    n_head_kv: int
    head_k: int
    head_v: int
    window: int | None = Field(description="Sliding window in tokens; null without one.")
    n_expert_used: int
    nextn: bool
    n_bytes: Bytes
    roles: dict[Role, RoleV1]


class LayerUseV1(Shape):
    layer: int
    n_selections: int
    entropy_bits: float
    effective: float = Field(description="Experts that a uniform router would need for the same entropy.")
    touched: int
    top_share: float = Field(description="Selections that the most used tenth of the experts takes.")


class HitCurveV1(Shape):
    policy: Policy
    ground: Ground = Field(description="replay of the sequence, counts alone (a bound), or a prior.")
    points: tuple[tuple[float, float], ...] = Field(description="Share of the expert bytes, hit rate.")


class RoutingV1(Shape):
    source: Text
    method: Text
    phase: Literal["decode", "prefill"]
    n_tokens: int
    n_used: int
    expert_bytes: Bytes
    cycle_bytes: Bytes = Field(description="Expert bytes that one token selects.")
    shares: tuple[tuple[float, float], ...] = Field(description="Most used share of the experts, share of selections.")
    overlap: tuple[tuple[int, float], ...] = Field(description="Distance in tokens, share of experts selected again.")
    stability: dict[Text, float] | None = Field(description="A fixed set of the first half, scored on the second.")
    curves: tuple[HitCurveV1, ...]
    layers: tuple[LayerUseV1, ...]


class ModelDetailV1(Shape):
    """What one GGUF holds, all shards together."""

    schema_: Literal["moeplan.model/1"] = Field(default="moeplan.model/1", alias="schema")
    path: Text
    arch: Text
    name: Text
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
    fingerprint: Text
    shards: tuple[Text, ...]
    attention_known: bool = Field(description="False where the cache rules of this architecture are assumed.")
    roles: dict[Role, RoleV1]
    layers: tuple[LayerV1, ...]
    kv_bytes_per_token: dict[Text, Bytes] = Field(
        description="By cache type (K and V alike): what one more token of context costs beyond every sliding window."
    )
    metadata: dict[Text, Value]
    notes: tuple[Text, ...]
    routing: RoutingV1 | None = Field(default=None, description="Which experts are used; only with --routing.")


_COMPUTED: Final = frozenset({"schema_", "n_tensors", "roles", "layers", "kv_bytes_per_token", "metadata", "routing"})


def model_shape(model: Model) -> ModelDetailV1:
    """A model in its JSON shape."""
    same = set(ModelDetailV1.model_fields) - _COMPUTED
    per_layer: dict[int, list[Tensor]] = {}
    for tensor in model.tensors:
        if tensor.layer is not None:
            per_layer.setdefault(tensor.layer, []).append(tensor)
    costs = {kind: kv_bytes_per_token(model, kind) for kind in KV_TYPES}
    return ModelDetailV1(
        n_tensors=len(model.tensors),
        roles=_roles(model.tensors),
        layers=tuple(_layer(layer, per_layer.get(layer.index, [])) for layer in model.layers),
        kv_bytes_per_token={kind: cost for kind, cost in costs.items() if cost is not None},
        metadata={key: _finite(value) for key, value in model.metadata},
        routing=None if model.routing is None else _routing(model.routing),
        **{name: getattr(model, name) for name in same},
    )


def _finite(value: str | int | float | bool) -> str | int | float | bool | None:
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def _layer(layer: Layer, tensors: list[Tensor]) -> LayerV1:
    same = ["index", "n_head", "n_head_kv", "head_k", "head_v", "n_expert_used", "nextn"]
    return LayerV1(
        attention=layer.kind,
        window=layer.window or None,
        n_bytes=sum(tensor.n_bytes for tensor in tensors),
        roles=_roles(tensors),
        **{name: getattr(layer, name) for name in same},
    )


def _roles(tensors: Iterable[Tensor]) -> dict[Role, RoleV1]:
    return {
        role: RoleV1(n_tensors=found.n_tensors, n_bytes=found.n_bytes, types=dict(found.types))
        for role, found in by_role(tensors).items()
    }


def _routing(stats: RoutingStats) -> RoutingV1:
    same = ("phase", "n_tokens", "expert_bytes", "cycle_bytes", "shares", "overlap")
    held = stats.stability
    return RoutingV1(
        source=stats.routing.source,
        method=stats.routing.method,
        n_used=stats.routing.n_used,
        stability=None if held is None else {"share": held.share, "learned": held.learned, "fitted": held.fitted},
        curves=tuple(HitCurveV1(policy=c.policy, ground=c.ground, points=c.points) for c in stats.curves),
        layers=tuple(
            LayerUseV1(**{name: getattr(layer, name) for name in LayerUseV1.model_fields}) for layer in stats.layers
        ),
        **{name: getattr(stats, name) for name in same},
    )
