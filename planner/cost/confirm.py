"""The engine's own figures against the prediction, like with like, and what follows from a difference.

``llama-fit-params`` sizes outputs for a whole batch, opens no second context and always reads the weights
(``common_fit_print``, common/fit.cpp, b11434), so it is compared with the prediction for itself, not with that
for llama-server.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner import units
from planner.cost.model import CostModel
from planner.facts.allocation import HOST_ROW, Allocation
from planner.facts.machine import Machine
from planner.facts.model import Model
from planner.facts.reading import Source
from planner.plans.memory import Memory, Term, joined, total
from planner.plans.oracle import Confirmation, Difference, Oracle
from planner.plans.plan import Caution
from planner.plans.settings import LoadMode, Settings, Tool
from planner.units import MIB

Extra = tuple[tuple[str, int], ...]
"""Bytes per device (or ``Host``) that the engine needs beyond the prediction."""

RESIDUAL: Final = "oracle residual"


def comparable(settings: Settings) -> Settings:
    """The same placement as llama-fit-params can be asked about it; what no figure depends on is left out.

    Weights are read (it ignores the load mode) and not repacked (``-nr``: a CPU build would leave the repacked
    ones out of its Host row). It has no slots that share a cache and no draft model.
    """
    return replace(
        settings,
        load_mode=LoadMode.NONE,
        repack=False,
        kv_unified=False,
        spec_type=None,
        threads=None,
        threads_batch=None,
        cache_ram_mib=0,
        ctx_checkpoints=0,
    )


def repeatable(settings: Settings) -> bool:
    """Whether the same question has the same answer later: a split by free memory has not."""
    return len(settings.devices) < 2 or any(settings.tensor_split)


def compare(model: Model, machine: Machine, settings: Settings, rows: tuple[Allocation, ...]) -> tuple[Difference, ...]:
    """Every figure of ``rows`` and every predicted device. ``settings`` must be ``comparable``."""
    memory = CostModel(model, machine, Tool.FIT_PARAMS).memory(settings)
    ours = {d.id: (total(d.model), total(d.context) + total(d.cache), total(d.compute)) for d in memory.devices}
    host = memory.host
    ours[HOST_ROW] = (total(host.model), total(host.context), total(host.compute))
    theirs = {row.device: (row.model_bytes, row.context_bytes, row.compute_bytes) for row in rows}
    nothing = (0, 0, 0)
    return tuple(
        Difference(device, term, said, predicted // MIB * MIB)
        for device in dict.fromkeys((*ours, *theirs))
        for term, said, predicted in zip(
            ("model", "context", "compute"), theirs.get(device, nothing), ours.get(device, nothing), strict=True
        )
    )


def missing(differences: tuple[Difference, ...]) -> Extra:
    """Bytes that the engine needs beyond the prediction, per device that is out of tolerance."""
    outside = dict.fromkeys(d.device for d in differences if not d.within)
    sums = ((device, sum(d.residual_bytes for d in differences if d.device == device)) for device in outside)
    return tuple((device, n_bytes) for device, n_bytes in sums if n_bytes > 0)


def larger(one: Extra, other: Extra) -> Extra:
    """Per device the larger of the two."""
    most = dict(one)
    for device, n_bytes in other:
        most[device] = max(n_bytes, most.get(device, 0))
    return tuple(most.items())


def verdict(differences: tuple[Difference, ...], build: int | None, *, stored: bool) -> Oracle:
    """The engine's answer as a result."""
    agrees = all(d.within for d in differences)
    outcome = Confirmation.CONFIRMED if agrees else Confirmation.DISAGREES
    return Oracle(outcome, build, stored, differences)


def cautions(oracle: Oracle) -> tuple[Caution, ...]:
    """What the user should know of the engine's answer: both numbers where it counts otherwise."""
    if oracle.outcome is Confirmation.FAILED:
        return (Caution("oracle-failed", f"llama.cpp did not confirm the memory: {oracle.reason}."),)
    if oracle.outcome is not Confirmation.DISAGREES:
        return ()
    figures = ", ".join(
        f"{d.device} {d.term} {units.mib(d.engine_bytes)} (predicted {units.mib(d.predicted_bytes)})"
        for d in oracle.differences
        if not d.within
    )
    kept = " and ".join(f"{units.mib(n)} of {device}" for device, n in oracle.reserved)
    kept = f" {kept} are set aside for the difference." if kept else ""
    return (Caution("oracle-disagrees", f"{oracle.engine} counts otherwise: {figures}.{kept}"),)


class CorrectedCost(CostModel):
    """A cost model whose every answer holds what the engine needs beyond it.

    Args:
        extra: measured for some settings of the same model and machine, and used for all of them.
    """

    def __init__(self, model: Model, machine: Machine, tool: Tool, extra: Extra, *, whole: bool = True) -> None:
        super().__init__(model, machine, tool, whole=whole)
        self._extra = {
            device: Term(RESIDUAL, n_bytes, Source.MEASURED, "llama.cpp needs this much more than predicted")
            for device, n_bytes in extra
        }

    def overhead(self, settings: Settings) -> dict[str, int]:
        """As of ``CostModel``, with the residual."""
        extra = {device: term.n_bytes for device, term in self._extra.items()}
        return {device: n_bytes + extra.get(device, 0) for device, n_bytes in super().overhead(settings).items()}

    def memory(self, settings: Settings, *, compute: bool = True) -> Memory:
        """As of ``CostModel``, with the residual as overhead. Raises as it does."""
        found = super().memory(settings, compute=compute)
        devices = tuple(
            replace(d, overhead=(*d.overhead, self._extra[d.id])) if d.id in self._extra else d for d in found.devices
        )
        host = found.host
        if HOST_ROW in self._extra:
            host = replace(host, overhead=(*host.overhead, self._extra[HOST_ROW]))
        return joined(devices, host, self.unified)
