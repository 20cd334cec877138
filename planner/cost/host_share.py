"""What of the blocks is in host memory."""

from __future__ import annotations

from planner.cost.patterns import override_pattern
from planner.cost.tape import HOST
from planner.facts.model import Model, Role
from planner.plans.settings import Settings


def computes_on_host(model: Model, settings: Settings) -> bool:
    """Whether a block, tensors of one or the output layer are in host memory; the embedding, only looked up, is not
    asked for."""
    moved = any(device == HOST for _, device in settings.override_tensor)
    return not settings.devices or moved or settings.n_cpu_moe > 0 or settings.n_gpu_layers <= model.n_layer


def host_expert_shares(model: Model, settings: Settings, layers: tuple[str, ...]) -> tuple[float, ...]:
    """Per block, the share of its routed expert bytes in host memory: overrides first, then ``n_cpu_moe``."""
    shares = [1.0 if i < settings.n_cpu_moe or layers[i] == HOST else 0.0 for i in range(model.n_layer)]
    rules = [(override_pattern(pattern), target == HOST) for pattern, target in settings.override_tensor]
    if not rules:
        return tuple(shares)
    total, host = [0] * model.n_layer, [0.0] * model.n_layer
    for tensor in model.tensors:
        if tensor.role is Role.EXPERT and tensor.layer is not None:
            on_host = next((to_host for rule, to_host in rules if rule.search(tensor.name)), None)
            share = shares[tensor.layer] if on_host is None else float(on_host)
            total[tensor.layer] += tensor.n_bytes
            host[tensor.layer] += share * tensor.n_bytes
    return tuple(host[i] / total[i] if total[i] else 0.0 for i in range(model.n_layer))
