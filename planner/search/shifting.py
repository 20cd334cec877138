"""Layers moved between unlike devices: the balanced split leaves all equally empty, a faster one may take more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final

from planner.plans.compare import cost
from planner.plans.plan import Candidate
from planner.search.candidates import TIE
from planner.search.engine import Search

LAYERS: Final = (8, 4, 2, 1)
"""How many move at once."""


def shifted(searched: Search, chosen: Candidate) -> Candidate:
    """The choice with layers on other devices, if that is faster by more than a tie; the headroom always stays.

    Two devices without experts in RAM are tried in the other order, too: the first has nothing to copy then, and the
    last holds the output.
    """
    settings = chosen.settings
    if not searched.splits(settings) or _alike(searched, settings.devices):
        return chosen
    starts = [chosen]
    if len(settings.devices) == 2 and not settings.n_cpu_moe and not settings.override_tensor:
        starts.append(searched.evaluate(replace(settings, devices=settings.devices[::-1], tensor_split=())))
    goal = searched.problem.workload.goal
    found = [_settled(searched, start) for start in starts if start.runs and start.verdict is chosen.verdict]
    best = min(found, key=lambda c: cost(c, goal))
    return best if cost(best, goal) < cost(chosen, goal) * (1.0 - TIE) else chosen


def _settled(searched: Search, current: Candidate) -> Candidate:
    """Moves as long as one is faster, large ones first."""
    goal = searched.problem.workload.goal
    for n in LAYERS:
        better: Candidate | None = current
        while better is not None:
            current = better
            better = next((c for c in _moves(searched, current, n) if cost(c, goal) < cost(current, goal)), None)
    return current


def _moves(searched: Search, current: Candidate, n: int) -> Iterator[Candidate]:
    """What runs as well with ``n`` layers moved from one device to its neighbour."""
    split = current.settings.tensor_split
    for pair in pairwise(range(len(split))):
        for source, target in (pair, pair[::-1]):
            if split[source] <= n:
                continue
            moved = list(split)
            moved[source], moved[target] = moved[source] - n, moved[target] + n
            settings = replace(current.settings, tensor_split=tuple(moved))
            found = searched.evaluator.candidate(settings, searched.draft.reserve)
            if found.runs and found.verdict is current.verdict:
                yield found


def _alike(searched: Search, devices: tuple[str, ...]) -> bool:
    """Whether no device is faster than another, as far as it is known."""
    gpus = [searched.problem.gpu(device) for device in devices]
    return len({(gpu.name, gpu.memory_bps and gpu.memory_bps.value) for gpu in gpus}) == 1
