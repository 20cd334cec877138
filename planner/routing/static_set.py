"""A fixed set of experts for a pool that never changes: the most selected ones per byte, some of every layer."""

from __future__ import annotations

from planner.errors import RoutingFileError
from planner.facts.model import Model
from planner.facts.routing import PoolSet, RoutingStats
from planner.routing.shape import shape_of


def fixed_set(model: Model, stats: RoutingStats, budget_bytes: int) -> PoolSet:
    """The set for a budget, counted with every layer's own bytes per expert.

    Every layer gets as many experts as a token uses there at least: the working-set fork wants rows for each, and
    fewer could not serve a token.

    Raises:
        RoutingFileError: layers that the recording lacks, or a budget below one token's experts.
    """
    shape, routing = shape_of(model), stats.routing
    missing = sorted(set(shape.layers) - set(routing.layers))
    if missing:
        raise RoutingFileError(routing.source, expected="every layer with experts", found=f"none of layer {missing[0]}")
    sizes, phase = shape.bytes_of(routing.layers), routing.main
    cycle = sum(sizes) * shape.n_used
    if budget_bytes < cycle:
        raise RoutingFileError(
            "--pool", expected=f"at least {cycle} bytes, what one token uses", found=f"{budget_bytes} bytes"
        )
    taken: set[tuple[int, int]] = set()
    ranked = []
    for row, (counts, size) in enumerate(zip(phase.counts, sizes, strict=True)):
        order = sorted(range(len(counts)), key=lambda expert: (-counts[expert], expert))
        taken.update((row, expert) for expert in order[: shape.n_used])
        ranked += [(-counts[expert] / size, row, expert) for expert in order[shape.n_used :] if counts[expert]]
    left = budget_bytes - cycle
    for _, row, expert in sorted(ranked):
        if sizes[row] <= left:
            taken.add((row, expert))
            left -= sizes[row]
    hits = sum(phase.counts[row][expert] for row, expert in taken)
    experts = tuple(sorted((routing.layers[row], expert) for row, expert in taken))
    return PoolSet(
        experts=experts,
        layers=routing.layers,
        expert_bytes=sizes,
        budget_bytes=budget_bytes,
        n_bytes=budget_bytes - left,
        hit_rate=hits / max(sum(map(sum, phase.counts)), 1),
    )
