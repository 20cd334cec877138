"""The placement ladder: from everything on the GPU down to nothing, and the steps between two rungs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

from planner.facts.model import Role
from planner.plans.rule import Draft, Problem


class Rung(NamedTuple):
    """One placement."""

    n_gpu_layers: int
    n_cpu_moe: int


def rungs(draft: Draft, devices: tuple[str, ...]) -> tuple[Rung, ...]:
    """Placements the draft allows, experts leaving the devices first, then whole layers; one without devices."""
    layers, blocks = draft.values("n_gpu_layers"), draft.values("n_cpu_moe")
    if not devices:
        return (Rung(0, blocks[0]),) if 0 in layers else ()
    return (*(Rung(layers[0], n) for n in blocks), *(Rung(g, blocks[-1]) for g in layers[1:]))


def first_true(n: int, holds: Callable[[int], bool], near: int = 0) -> int:
    """The first index that holds, for a predicate that stays true from there; ``n`` if none does.

    Gallops away from ``near`` (by 1, 2, 4, …) before it bisects: with a good start the answer is near.
    """
    near, step = min(near, n - 1), 1
    if n and holds(near):
        high = near
        while high and holds(below := max(high - step, 0)):
            high, step = below, 2 * step
        low = max(high - step, -1) + 1
    else:
        low = near + 1
        while (high := min(low - 1 + step, n)) < n and not holds(high):
            low, step = high + 1, 2 * step
    return bisect_left(range(high), True, low, key=holds)


class Part(NamedTuple):
    """Some expert tensors of a block that stay on the host (``pattern``) while the others move to the GPU."""

    pattern: str
    moved_bytes: int


def parts(problem: Problem, block: int) -> tuple[Part, ...]:
    """Every proper, non-empty subset of a block's expert tensors that could stay on the host, most moved first."""
    sizes: dict[str, int] = {}
    for tensor in problem.model.tensors:
        if tensor.layer == block and tensor.role is Role.EXPERT:
            stem = tensor.name.split(".")[2]
            sizes[stem] = sizes.get(stem, 0) + tensor.n_bytes
    stems = sorted(sizes)
    subsets = [[s for i, s in enumerate(stems) if mask >> i & 1] for mask in range(1, 2 ** len(stems) - 1)]
    found = [
        Part(rf"blk\.{block}\.({'|'.join(kept)})\.", sum(sizes.values()) - sum(sizes[s] for s in kept))
        for kept in subsets
    ]
    return tuple(sorted(found, key=lambda part: (-part.moved_bytes, part.pattern)))
