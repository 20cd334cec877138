"""The joint search: every open combination, on the first rung of the placement ladder that keeps the reserve.

Memory on the devices falls with every rung, so the rung is found by bisection; the candidate with the smallest
cost of the goal wins. Deterministic.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from planner.cost.evaluate import Evaluator, balanced_split
from planner.facts.model import Role
from planner.plans.compare import cost
from planner.plans.plan import Candidate, Verdict
from planner.plans.rule import Draft, Problem, Rule
from planner.plans.settings import LoadMode, Settings
from planner.search.pins import pinned

TIE: Final = 0.005
"""Costs within this share count as equal: predictions are not sharper. The rules' order of values decides,
then headroom."""

PARTIAL_GAIN: Final = 0.01
"""A single-tensor override must save this share of the goal's cost to be worth its flag."""

LADDER: Final = ("n_gpu_layers", "n_cpu_moe")

ELASTIC: Final = ("cache_ram_mib",)
"""Takes what the others leave: searched at its least value, then raised as far as nothing suffers."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One placement; ``devices`` False leaves every GPU out."""

    n_gpu_layers: int
    n_cpu_moe: int
    devices: bool = True


@dataclass(slots=True)
class Search:
    """One problem under one list of rules."""

    problem: Problem
    evaluator: Evaluator
    draft: Draft

    def evaluate(self, settings: Settings) -> Candidate:
        """Price settings under the draft's reserve; several devices get their balanced split unless it is pinned."""
        return self.evaluator.candidate(self._split(settings), self.draft.reserve)

    def _split(self, settings: Settings) -> Settings:
        if len(settings.devices) > 1 and self.problem.pin("tensor_split") is None:
            return replace(settings, tensor_split=balanced_split(self.evaluator, settings))
        return settings

    def _devices_hold(self, settings: Settings) -> bool:
        """Whether every device keeps its reserve; RAM is another question."""
        memory = self.evaluator.memory(self._split(settings))
        return all(s.device == "host" for s in self.evaluator.shortfalls(memory, self.draft.reserve))

    def best(self) -> Candidate | None:
        """The cheapest candidate that fits, or None."""
        goal = self.problem.workload.goal
        rungs = self.rungs()
        tried = (self._first_that_fits(base, rungs) for base in self.combinations())
        fitting = [candidate for candidate in tried if candidate is not None]
        if not fitting:
            return None
        healthy = [c for c in fitting if c.verdict is Verdict.FITS] or fitting
        least = min(cost(c, goal) for c in healthy)
        tied = [c for c in healthy if cost(c, goal) <= least * (1.0 + TIE)]
        return self._stretched(self._partial_layer(min(tied, key=self._preference)))

    def combinations(self) -> Iterator[Settings]:
        """Every combination of what is open, at the top of the ladder."""
        decided = {*LADDER, *ELASTIC}
        open_ = [(name, values) for name, values in self.draft.domains if name not in decided and len(values) > 1]
        base = replace(self.draft.settings(), **{name: self.draft.values(name)[-1] for name in ELASTIC})
        for values in product(*(values for _, values in open_)):
            chosen = replace(base, **dict(zip((name for name, _ in open_), values, strict=True)))
            yield replace(chosen, n_batch=max(chosen.n_batch, chosen.n_ubatch))

    def rungs(self) -> tuple[Rung, ...]:
        """Placements from everything on the GPU down to nothing: experts leave first, then whole layers."""
        layers, blocks = self.draft.values("n_gpu_layers"), self.draft.values("n_cpu_moe")
        rungs = [Rung(layers[0], n) for n in blocks] + [Rung(g, blocks[-1]) for g in layers[1:]]
        if layers[-1] == 0 and self.problem.pin("devices") is None:
            rungs.append(Rung(0, 0, devices=False))
        return tuple(rungs)

    def at(self, base: Settings, rung: Rung) -> Settings:
        """``base`` on one rung."""
        if rung.devices:
            return replace(base, n_gpu_layers=rung.n_gpu_layers, n_cpu_moe=rung.n_cpu_moe)
        mapped = LoadMode.MMAP if LoadMode.MMAP in self.draft.values("load_mode") else base.load_mode
        return replace(base, n_gpu_layers=0, n_cpu_moe=0, devices=(), load_mode=mapped)

    def _first_that_fits(self, base: Settings, rungs: tuple[Rung, ...]) -> Candidate | None:
        """The highest rung that the devices hold, if RAM holds the rest of it.

        Lower rungs only ask more of RAM, so one that fails there ends the ladder, but for the last rung
        (no device at all), which asks nothing of the devices.
        """
        below = range(1, len(rungs))
        first = (
            0
            if self._devices_hold(self.at(base, rungs[0]))
            else 1 + bisect_left(below, True, key=lambda i: self._devices_hold(self.at(base, rungs[i])))
        )
        for index in sorted({first, len(rungs) - 1}):
            if index < len(rungs):
                candidate = self.evaluate(self.at(base, rungs[index]))
                if not candidate.shortfalls:
                    return candidate
        return None

    def _partial_layer(self, chosen: Candidate) -> Candidate:
        """Bring single expert tensors of the last host block to the GPU where that fits and pays."""
        settings, goal = chosen.settings, self.problem.workload.goal
        block = settings.n_cpu_moe - 1
        fewer = [n for n in self.draft.values("n_cpu_moe") if n < settings.n_cpu_moe]
        if block < 0 or not fewer or settings.n_gpu_layers <= self.problem.model.n_layer:
            return chosen
        best = chosen
        for pattern in _partial_patterns(self.problem, block):
            tried = self.evaluate(replace(settings, n_cpu_moe=fewer[-1], override_tensor=((pattern, "CPU"),)))
            if not tried.shortfalls and cost(tried, goal) < cost(best, goal):
                best = tried
        return best if cost(best, goal) <= cost(chosen, goal) * (1.0 - PARTIAL_GAIN) else chosen

    def _preference(self, candidate: Candidate) -> tuple[int, int]:
        """How far down the rules' domains its values stand (they list them best first), then least headroom."""
        settings = candidate.settings
        down = sum(
            values.index(getattr(settings, name))
            for name, values in self.draft.domains
            if name not in (*LADDER, *ELASTIC) and getattr(settings, name) in values
        )
        return down, -min((device.headroom_bytes for device in candidate.memory.devices), default=0)

    def _stretched(self, chosen: Candidate) -> Candidate:
        """The chosen candidate with every elastic setting at its best value that still fits as well."""
        for name in ELASTIC:
            raised = (self.evaluate(replace(chosen.settings, **{name: v})) for v in self.draft.values(name))
            chosen = next((c for c in raised if not c.shortfalls and c.verdict is chosen.verdict), chosen)
        return chosen


def _partial_patterns(problem: Problem, block: int) -> tuple[str, ...]:
    """Regexes that keep a proper, non-empty subset of a block's expert tensors on the host, smallest subset first."""
    tensors = (t.name for t in problem.model.tensors if t.layer == block and t.role is Role.EXPERT)
    stems = sorted({name.split(".")[2] for name in tensors})
    subsets = [tuple(s for i, s in enumerate(stems) if mask >> i & 1) for mask in range(1, 2 ** len(stems) - 1)]
    return tuple(rf"blk\.{block}\.({'|'.join(kept)})\." for kept in sorted(subsets, key=lambda kept: (len(kept), kept)))


def search(problem: Problem, rules: tuple[Rule, ...], evaluator: Evaluator) -> Search:
    """Run the rules' first half, in order; later rules see what earlier ones decided, and the pins."""
    found = Search(problem, evaluator.under(problem.workload), Draft())
    for rule in rules:
        found.draft = pinned(problem, found.draft.narrowed(rule.propose(problem, found.draft, found.evaluate)))
    return found
