"""How many layers each device takes, computed from bytes after the experts were moved.

llama.cpp splits by free memory before overrides; with ``--n-cpu-moe`` the stripped blocks then sit on the first
device and the full ones overload the last (ggml-org/llama.cpp#15136).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

from planner import units
from planner.cost.evaluate import Evaluator
from planner.cost.layout import used_before
from planner.plans.settings import Settings

_HALVINGS: Final = 20
"""Steps of the search for the smallest share of room: to a millionth of it."""


def balanced_split(evaluator: Evaluator, settings: Settings, beside: Mapping[str, int]) -> tuple[float, ...]:
    """Layers per device (the output layer is one) so that the fullest device is as empty as can be.

    Args:
        beside: bytes that a device needs or keeps besides weights and cache.
    """
    weights = layer_bytes(evaluator, settings)
    free = {g.id: g.total_bytes - used_before(g) - beside.get(g.id, 0) for g in evaluator.machine.gpus}
    return _even(list(accumulate(weights, initial=0)), [max(free[d], units.MIB) for d in settings.devices])


def layer_bytes(evaluator: Evaluator, settings: Settings) -> list[int]:
    """Weights and cache of every layer that is on a device, the output layer last."""
    model = evaluator.model
    first = max(model.n_layer + 1 - settings.n_gpu_layers, 0)
    return [*evaluator.cost.block_bytes(settings)[first:], evaluator.cost.output_bytes]


def _even(sums: Sequence[int], room: Sequence[int]) -> tuple[float, ...]:
    """Consecutive weights (as prefix sums) per device for the smallest share of ``room`` that takes them all."""
    n, low, high = len(sums) - 1, 0.0, sums[-1] / min(room) + 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _stops(sums, [middle * r for r in room])[-1] == n:
            high = middle
        else:
            low = middle
    stops = _stops(sums, [high * r for r in room])
    return tuple(float(stop - start) for start, stop in pairwise([0, *stops]))


def _stops(sums: Sequence[int], limits: Sequence[float]) -> list[int]:
    """Where each limit, filled with consecutive weights, is full."""
    stops, stop = [], 0
    for limit in limits:
        stop = bisect_right(sums, sums[stop] + limit, stop) - 1
        stops.append(stop)
    return stops
