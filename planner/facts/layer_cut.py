"""Layers cut out of a model to be timed: what two files of different depth differ by."""

from __future__ import annotations

from dataclasses import dataclass

from planner.facts.model import Model, Role


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What the time of a block depends on beside its size: ``moe`` or ``dense``, and the types of its experts."""

    kind: str
    expert_type: str | None = None


@dataclass(frozen=True, slots=True)
class KindCount:
    """``n`` blocks of one kind, which together make a token read ``read_bytes``."""

    kind: LayerKind
    n: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class CutPair:
    """Two cuts of one model: the first ``shallow`` and the first ``deep`` blocks.

    Args:
        model: fingerprint of the model they come from.
        kinds: what the blocks from ``shallow`` to ``deep`` are.
        expert_share: part of the bytes a token reads in those blocks that belongs to routed experts.
        shallow_path, deep_path: the files; empty until they are written.
    """

    model: str
    shallow: int
    deep: int
    kinds: tuple[KindCount, ...]
    expert_share: float
    shallow_path: str = ""
    deep_path: str = ""

    @property
    def n_layers(self) -> int:
        """Blocks that the difference spans."""
        return self.deep - self.shallow

    @property
    def read_bytes(self) -> int:
        return sum(kind.read_bytes for kind in self.kinds)


def kinds_of(model: Model) -> tuple[LayerKind, ...]:
    """The kind of every block, multi-token-prediction blocks included."""
    types: list[set[str]] = [set() for _ in range(model.n_layer)]
    for tensor in model.tensors:
        if tensor.role is Role.EXPERT and tensor.layer is not None and tensor.name.endswith(".weight"):
            types[tensor.layer].add(tensor.type)
    return tuple(LayerKind("moe", "+".join(sorted(found))) if found else LayerKind("dense") for found in types)
