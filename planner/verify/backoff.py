"""The safer neighbour of settings that did not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from planner.plans.plan import Candidate
from planner.plans.rule import Problem
from planner.plans.settings import LoadMode, Settings

LEAST_UBATCH: Final = 64
LEAST_STEP: Final = 0.01
"""A step must free this share of what the plan takes, or it changes nothing."""

Changes = tuple[tuple[str, Any], ...]


def neighbours(
    problem: Problem, current: Candidate, evaluate: Callable[[Settings], Candidate]
) -> Iterator[tuple[Changes, Candidate]]:
    """Safer settings, the one that costs least first: a smaller pool, a smaller ubatch, one more block on the CPU,
    mapped weights, a smaller prompt cache. Each asks less of the device, or of RAM where there is none."""
    for changes in _steps(problem, current.settings):
        if any(problem.pin(name) is not None for name, _ in changes):
            continue
        found = evaluate(replace(current.settings, **dict(changes)))
        if found.runs and _asks_less(found, current):
            yield changes, found


def _steps(problem: Problem, settings: Settings) -> Iterator[Changes]:
    if settings.moe_cache_mib:
        yield (("moe_cache_mib", settings.moe_cache_mib // 2 if settings.moe_cache_mib >= 2048 else 0),)
    if settings.devices:
        for n_ubatch in _halves(settings.n_ubatch):
            yield (("n_ubatch", n_ubatch),)
        if settings.n_cpu_moe < problem.model.n_layer and problem.model.is_moe:
            for more in (1, 2, 4, 8):
                yield (("n_cpu_moe", min(settings.n_cpu_moe + more, problem.model.n_layer)), ("override_tensor", ()))
    if settings.load_mode not in (LoadMode.MMAP, LoadMode.DIO):
        yield (("load_mode", LoadMode.MMAP),)
    if settings.cache_ram_mib:
        yield (("cache_ram_mib", 0),)
    if not settings.devices:
        for n_ubatch in _halves(settings.n_ubatch):
            yield (("n_ubatch", n_ubatch),)


def _halves(n_ubatch: int) -> Iterator[int]:
    while (n_ubatch := n_ubatch // 2) >= LEAST_UBATCH:
        yield n_ubatch


def _asks_less(found: Candidate, current: Candidate) -> bool:
    before = {device.id: device.predicted_bytes for device in current.memory.devices}
    after = {device.id: device.predicted_bytes for device in found.memory.devices}
    if before:
        saved = [before[device] - after.get(device, 0) for device in before]
        return min(saved) >= 0 and max(saved) >= LEAST_STEP * max(before.values())
    needed = current.memory.host.unevictable_bytes
    return needed - found.memory.host.unevictable_bytes >= LEAST_STEP * max(needed, 1)
