"""Experts read from disk as they are needed, with a cache in RAM (BigMoeOnEdge).

One LRU serves all layers, so a cache that does not hold what one token uses never hits: 0 % of hits at 1,500 MiB where
a token uses 1,815 MiB (Helldez/BigMoeOnEdge docs/cache-sizing.md, gpt-oss-120b).
"""

from __future__ import annotations

from typing import Final

from planner.cost.host import margin_bytes
from planner.facts.machine import Ram
from planner.facts.model import Model
from planner.plans.memory import HostMemory, total
from planner.units import MIB

_LEAST_MIB: Final = 1500
"""``MoeStreamConfig::cache_min_mb``; the engine refuses less."""


def cache_mib(model: Model, ram: Ram, host: HostMemory) -> int:
    """RAM that dense weights, context, compute and the system's margin leave, at most all experts on the host; 0 for
    less than one token's experts."""
    experts = total(tuple(term for term in host.model if term.name == "weights expert"))
    available = ram.total_bytes if ram.available_bytes is None else ram.available_bytes
    taken = total(host.model) - experts - host.lazy_bytes + total(host.context) + total(host.compute)
    room = min(available - margin_bytes(available, ram.overflow) - taken, experts) // MIB
    cycle = experts * model.n_expert_used / max(model.n_expert, 1) / MIB
    return room if room >= max(cycle, _LEAST_MIB) else 0
