"""``moeplan.model/1``: what one GGUF holds, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from emit.json_plan_shape import Bytes, Says, Shape, finite
from emit.model_facts import KV_TYPES, by_role, kv_bytes_per_token
from planner.facts.model import AttentionKind, Layer, Model, Role, Tensor
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


def model_shape(model: Model) -> ModelDetailV1:
    """A model in its JSON shape."""
    per_layer: dict[int, list[Tensor]] = {}
    for tensor in model.tensors:
        if tensor.layer is not None:
            per_layer.setdefault(tensor.layer, []).append(tensor)
    costs = {kind: kv_bytes_per_token(model, kind) for kind in KV_TYPES}
    return ModelDetailV1(
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
