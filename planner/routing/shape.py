"""What a recording is checked against: the routed experts of a model."""

from __future__ import annotations

from dataclasses import dataclass

from planner import units
from planner.errors import RoutingFileError
from planner.facts.model import Model, Role
from planner.facts.routing import Routing


@dataclass(frozen=True, slots=True)
class Shape:
    """Routed experts of a model.

    Args:
        layers: blocks that hold routed experts, multi-token-prediction blocks left out.
        expert_bytes: bytes of one expert, all its matrices, per entry of ``layers``.
        n_used: experts per token.
    """

    layers: tuple[int, ...]
    expert_bytes: tuple[int, ...]
    n_expert: int
    n_used: int
    fingerprint: str

    def bytes_of(self, layers: tuple[int, ...]) -> tuple[int, ...]:
        """Bytes of one expert in some of the layers."""
        known = dict(zip(self.layers, self.expert_bytes, strict=True))
        return tuple(known[layer] for layer in layers)


def shape_of(model: Model) -> Shape:
    """The experts of a model. Raises RoutingFileError for one without any."""
    held: dict[int, int] = {}
    for tensor in model.tensors:
        if tensor.role is Role.EXPERT and tensor.layer is not None:
            held[tensor.layer] = held.get(tensor.layer, 0) + tensor.n_bytes
    running = [layer.index for layer in model.layers if not layer.nextn and layer.index in held]
    if not running or not model.n_expert:
        raise RoutingFileError(model.path, expected="a mixture of experts", found="a model without routed experts")
    sizes = tuple(held[index] // model.n_expert for index in running)
    return Shape(tuple(running), sizes, model.n_expert, model.n_expert_used, model.fingerprint)


def checked(routing: Routing, shape: Shape) -> Routing:
    """The recording, if it can be of this model.

    Raises:
        RoutingFileError: other layers, another count of experts, or the fingerprint of another model.
    """
    if routing.n_expert != shape.n_expert:
        raise _other(routing, f"{units.counted(shape.n_expert, 'expert')} per layer", str(routing.n_expert))
    strange = sorted(set(routing.layers) - set(shape.layers))
    if strange or len(set(routing.layers)) != len(routing.layers):
        raise _other(routing, "routed experts in its layers only", f"layer {strange[:1] or routing.layers[:1]}")
    if not 0 < routing.n_used <= shape.n_expert:
        raise _other(routing, f"at most {units.counted(shape.n_expert, 'expert')} per token", str(routing.n_used))
    if routing.fingerprint and routing.fingerprint != shape.fingerprint:
        raise _other(routing, f"the fingerprint {shape.fingerprint[:16]}", routing.fingerprint[:16])
    if not any(sum(row) for phase in (routing.prefill, routing.decode) if phase for row in phase.counts):
        raise _other(routing, "at least one selection", "none")
    return routing


def notes(routing: Routing, shape: Shape) -> tuple[str, ...]:
    """What a reader should know: fewer layers or experts per token than the model has."""
    found = []
    missing = len(shape.layers) - len(routing.layers)
    if missing:
        found.append(f"{missing} of {len(shape.layers)} layers with experts are not in the recording")
    if routing.n_used != shape.n_used:
        found.append(f"recorded with {units.counted(routing.n_used, 'expert')} per token; the file says {shape.n_used}")
    return tuple(found)


def _other(routing: Routing, expected: str, found: str) -> RoutingFileError:
    return RoutingFileError(
        routing.source, expected=expected, found=found, advice="were these statistics made with this model?"
    )
