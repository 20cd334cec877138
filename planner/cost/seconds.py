"""Seconds by resource, and the groups of blocks that they are summed over."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from planner.cost import rates
from planner.cost.layer_blocks import Block
from planner.plans.speed import Resource


class Group(NamedTuple):
    """``n`` blocks of one kind on one device; ``host_share`` of their expert bytes is in host memory."""

    block: Block
    device: str
    host_share: float
    n: int


@dataclass(slots=True)
class Costs:
    """Seconds by resource."""

    ram: float = 0.0
    gpu: float = 0.0
    pcie: float = 0.0
    disk: float = 0.0
    compute: float = 0.0
    measured: float = 0.0
    """Part of the others that stands on timed layers."""

    @property
    def total(self) -> float:
        return self.ram + self.gpu + self.pcie + self.disk + self.compute

    def per(self, tokens: float) -> Costs:
        """The share of one of ``tokens``."""
        if tokens == 1.0:
            return self
        return Costs(*(getattr(self, field.name) / tokens for field in fields(self)))

    def largest(self) -> Resource:
        return max(Resource, key=lambda resource: getattr(self, resource.value))


def touched_share(used: float, tokens: float) -> float:
    """Share of a block's experts that ``tokens`` of real text use, each of them the share ``used``; at least that.

    ``rates.SKEW`` has the law and where it comes from; a batch of synthetic tokens touches more or less.
    """
    return max(1.0 - (1.0 + tokens * used / rates.SKEW) ** -rates.SKEW, used) if used < 1.0 else 1.0
