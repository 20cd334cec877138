"""Which layers to cut out of a model so that a difference of two runs is the time of whole layers.

A cut is the first N blocks with everything outside the blocks: a prefix keeps every pattern of a file valid,
whichever block it counts from. Two depths differ by whole periods of the model's pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planner.errors import CutError
from planner.facts.layer_cut import CutPair, KindCount, LayerKind, kinds_of
from planner.facts.model import Layer, Model, Role
from planner.units import GIB, size

WANTED_BYTES: Final = 3 * GIB
"""Both files together grow to this while a larger difference is worth it: 3 s of copying on a slow disk."""
WANTED_LAYERS: Final = 20
HEAD: Final = ("output.weight", "token_embd.weight")


@dataclass(frozen=True, slots=True)
class Active:
    """Weights that one token reads in one block, bytes."""

    dense: int
    experts: int

    @property
    def total(self) -> int:
        return self.dense + self.experts


def choose(model: Model, active: Sequence[Active], max_bytes: int) -> CutPair:
    """The two depths.

    The shallow one shows every kind of attention and, in a mixture, a block with experts. The deep one has whole
    periods more: one at least. While both stay under ``WANTED_BYTES`` it grows, to two thirds of the model at most,
    until the difference spans ``WANTED_LAYERS`` and reads more than the head, which it must drown. The shallow one
    then follows to a third of it: the first blocks route more evenly than those after them, so a token finds fewer
    of their experts in a cache (0.95, 0.73, 0.69 and 0.67 ms per block over blocks 1 to 8, 9 to 14, 15 to 21 and 22
    to 29 of the demo model, b11549).

    Args:
        active: per block of the main model.
        max_bytes: what both files together may take.

    Raises:
        CutError: no two such depths, or they take too much.
    """
    n = sum(not layer.nextn for layer in model.layers)
    if any(tensor.name.startswith("per_layer_token_embd") for tensor in model.tensors):
        raise CutError(model.path, found="a per-layer embedding table, made for all blocks")
    shapes = _shapes(model, n)
    shallow = _shallow(model, n)
    if shallow >= n:
        raise CutError(model.path, found=f"{n} blocks, all of which are needed to show every kind once")
    step = _step(shapes, shallow, n)
    weights = _block_bytes(model, n)
    outside = sum(t.n_bytes for t in model.tensors if t.layer is None)
    head = next((t.n_bytes for name in HEAD for t in model.tensors if t.name == name), 0)

    def both(deep: int) -> int:
        """Bytes of both files, for the shallow depth of now."""
        return 2 * outside + sum(weights[:shallow]) + sum(weights[:deep])

    deep = min(shallow + step, n)
    if both(deep) > max_bytes:
        raise CutError(
            model.path,
            expected=f"a cut of at most {size(max_bytes)}",
            found=f"{size(both(deep))} for {shallow} and {deep} layers",
        )
    limit = min(max_bytes, WANTED_BYTES)
    while deep + step <= 2 * n // 3 and both(deep + step) <= limit:
        if deep - shallow >= WANTED_LAYERS and sum(a.total for a in active[shallow:deep]) > head:
            break
        deep += step
    while shallow + step <= deep // 3 and both(deep) + sum(weights[shallow : shallow + step]) <= limit:
        shallow += step
    return _pair(model, active, shallow, deep)


def _pair(model: Model, active: Sequence[Active], shallow: int, deep: int) -> CutPair:
    kinds = kinds_of(model)
    found: dict[LayerKind, list[int]] = {}
    for i in range(shallow, deep):
        found.setdefault(kinds[i], []).append(active[i].total)
    counts = tuple(KindCount(kind, len(reads), sum(reads)) for kind, reads in found.items())
    total = sum(active[i].total for i in range(shallow, deep))
    experts = sum(active[i].experts for i in range(shallow, deep))
    return CutPair(model.fingerprint, shallow, deep, counts, experts / total if total else 0.0)


def _block_bytes(model: Model, n: int) -> list[int]:
    sums = [0] * n
    for tensor in model.tensors:
        if tensor.layer is not None and tensor.layer < n:
            sums[tensor.layer] += tensor.n_bytes
    return sums


def _shapes(model: Model, n: int) -> list[tuple[object, ...]]:
    """Per block, all that its graph depends on; tensor types left out."""
    tensors: list[list[object]] = [[] for _ in range(n)]
    for tensor in model.tensors:
        if tensor.layer is not None and tensor.layer < n:
            tensors[tensor.layer].append((tensor.name.partition(".")[2].partition(".")[2], tensor.shape))
    return [
        (layer.kind, layer.window, layer.n_head, layer.n_head_kv, layer.compress_ratio, *tensors[layer.index])
        for layer in model.layers[:n]
    ]


def _shallow(model: Model, n: int) -> int:
    experts = {t.layer for t in model.tensors if t.role is Role.EXPERT}
    wanted = {_attention(layer) for layer in model.layers[:n]}
    seen, shown = set(), not experts
    for layer in model.layers[:n]:
        seen.add(_attention(layer))
        shown = shown or layer.index in experts
        if shown and seen == wanted:
            return layer.index + 1
    return n


def _attention(layer: Layer) -> tuple[object, ...]:
    return layer.kind, layer.window > 0, layer.compress_ratio


def _step(shapes: list[tuple[object, ...]], first: int, n: int) -> int:
    """The period of the pattern from ``first`` on, or where there is none a stretch that shows every kind left."""
    for period in range(1, (n - first) // 2 + 1):
        if all(shapes[i] == shapes[i + period] for i in range(first, n - period)):
            return period
    left, seen = set(shapes[first:n]), set()
    for length, shape in enumerate(shapes[first:n], 1):
        seen.add(shape)
        if seen == left:
            return length
    return n - first
