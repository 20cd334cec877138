"""Which share of a block's routed experts is in host memory."""

from __future__ import annotations

from planner.cost.patterns import override_pattern
from planner.cost.tape import HOST
from planner.facts.model import Model, Role
from planner.plans.settings import Settings


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
