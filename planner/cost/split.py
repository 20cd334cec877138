"""How many layers each device takes, computed from bytes after the experts were moved.

llama.cpp splits by free memory before overrides; with ``--n-cpu-moe`` the stripped blocks then sit on the first
device and the full ones overload the last (ggml-org/llama.cpp#15136).
"""

from __future__ import annotations

from planner import units
from planner.cost.evaluate import Evaluator, Reserve
from planner.cost.kv_types import row_bytes
from planner.cost.layout import used_before
from planner.facts.model import Layer, Model, Role
from planner.plans.memory import total
from planner.plans.settings import Settings

FIRST_GUESS = 2 * units.GIB
"""Driver context, compute buffer and headroom of a device, before they are known."""


def balanced_split(evaluator: Evaluator, settings: Settings, reserve: Reserve) -> tuple[float, ...]:
    """Layers per device (the output layer is one) so that the fullest device is as empty as can be.

    The first pass guesses what stands beside the weights, the second takes it from the first one's prediction.
    """
    weights = layer_bytes(evaluator, settings)
    free = {g.id: g.total_bytes - used_before(g) for g in evaluator.machine.gpus}
    guess = _even(weights, [max(free[d] - FIRST_GUESS, units.GIB) for d in settings.devices])
    beside = _beside(evaluator, settings, guess)
    keep = dict(reserve)
    return _even(weights, [max(free[d] - beside[d] - keep.get(d, 0), units.MIB) for d in settings.devices])


def layer_bytes(evaluator: Evaluator, settings: Settings) -> list[int]:
    """Weights and cache of every layer that is on a device, the output layer last."""
    cost, model = evaluator.cost, evaluator.model
    first = max(model.n_layer + 1 - settings.n_gpu_layers, 0)
    blocks = [
        cost.dense_bytes(i)
        + (cache_bytes(model.layers[i], settings) if settings.kv_offload else 0)
        + (0 if i < settings.n_cpu_moe else cost.expert_bytes(i))
        for i in range(first, model.n_layer)
    ]
    return [*blocks, _output_bytes(model)]


def cache_bytes(layer: Layer, settings: Settings) -> int:
    """KV bytes of one block for the whole context (a sliding window counts its window per slot)."""
    cells = min(settings.n_ctx, layer.window * settings.n_parallel) if layer.window else settings.n_ctx
    row = row_bytes(settings.type_k, layer.n_embd_k) + row_bytes(settings.type_v, layer.n_embd_v)
    return 0 if layer.nextn else row * cells


def _output_bytes(model: Model) -> int:
    """The head, which with tied embeddings is a copy of them."""
    if model.has_output:
        return sum(t.n_bytes for t in model.tensors if t.role is Role.OUTPUT)
    return sum(t.n_bytes for t in model.tensors if t.name == "token_embd.weight")


def _beside(evaluator: Evaluator, settings: Settings, split: tuple[float, ...]) -> dict[str, int]:
    """What each device holds besides weights and cache."""
    memory = evaluator.split_memory(settings, split)
    return {d.id: total(d.compute) + total(d.cache) + total(d.overhead) for d in memory.devices}


def _even(weights: list[int], room: list[int]) -> tuple[float, ...]:
    """Consecutive weights per device for the smallest share of ``room`` that takes them all."""
    low, high = 0.0, sum(weights) / min(room) + 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if sum(_filled(weights, [middle * r for r in room])) == len(weights):
            high = middle
        else:
            low = middle
    return tuple(float(n) for n in _filled(weights, [high * r for r in room]))


def _filled(weights: list[int], limits: list[float]) -> list[int]:
    """How many consecutive weights each limit takes, in order."""
    counts, index = [], 0
    for limit in limits:
        taken, used = 0, 0.0
        while index < len(weights) and used + weights[index] <= limit:
            used += weights[index]
            index += 1
            taken += 1
        counts.append(taken)
    return counts
