"""The joint search: every open combination, on the first rung of the placement ladder that keeps the reserve.

Memory on the devices falls with every rung, so the rung is found by bisection; the candidate with the smallest
cost of the goal wins. Deterministic.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, NamedTuple

from planner.cost.evaluate import Evaluator, balanced_split
from planner.cost.layout import HOST
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


@dataclass(frozen=True, slots=True)
class Bound:
    """One combination, with the first rung that may fit and the least it can cost there."""

    base: Settings
    rung: int
    candidate: Candidate
    cost: float


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

    def best(self) -> Candidate | None:
        """The cheapest candidate that fits, or None: branch and bound over the open combinations."""
        goal = self.problem.workload.goal
        found: list[Candidate] = []
        rungs = self.rungs()
        bounds = [bound for base in self.combinations() if (bound := self._bound(base, rungs)) is not None]
        for bound in sorted(bounds, key=lambda b: (b.candidate.verdict is Verdict.PAGES, b.cost)):
            taken = _healthy(found)
            if taken and self._beaten(bound, taken):
                break
            candidate = self._first_that_fits(bound.base, rungs[bound.rung :])
            found += [candidate] if candidate is not None else []
        if not found:
            return None
        taken = _healthy(found)
        least = min(cost(c, goal) for c in taken)
        tied = [c for c in taken if cost(c, goal) <= least * (1.0 + TIE)]
        return self._stretched(self._partial_layer(min(tied, key=self._preference)))

    def _beaten(self, bound: Bound, taken: list[Candidate]) -> bool:
        """Whether nothing from ``bound`` on can be as good as what was found."""
        pages = bound.candidate.verdict is Verdict.PAGES
        if pages and taken[0].verdict is Verdict.FITS:
            return True
        least = min(cost(c, self.problem.workload.goal) for c in taken)
        return pages == (taken[0].verdict is Verdict.PAGES) and bound.cost > least * (1.0 + TIE)

    def _bound(self, base: Settings, rungs: tuple[Rung, ...]) -> Bound | None:
        """The highest rung that weights and cache alone leave possible, and the least it can cost; None if none."""

        def bound(index: int) -> Candidate:
            return self.evaluator.bound(self._split(self.at(base, rungs[index])), self.draft.reserve)

        rung = _first_true(len(rungs), lambda i: _keeps(bound(i)))
        if rung == len(rungs):
            return None
        return Bound(base, rung, bound(rung), cost(bound(rung), self.problem.workload.goal))

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
        """The highest of ``rungs`` that the devices hold, if RAM holds the rest of it.

        Lower rungs only ask more of RAM, so one that fails there ends the ladder, but for the last rung
        (no device at all), which asks nothing of the devices.
        """
        first = _first_true(len(rungs), lambda i: _keeps(self.evaluate(self.at(base, rungs[i]))))
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
        spare = min(d.headroom_bytes - dict(self.draft.reserve).get(d.id, 0) for d in chosen.memory.devices)
        for part in _parts(self.problem, block):
            if part.moved_bytes <= spare:
                override = ((part.pattern, HOST),)
                tried = self.evaluate(replace(settings, n_cpu_moe=fewer[-1], override_tensor=override))
                if not tried.shortfalls:
                    return tried if cost(tried, goal) <= cost(chosen, goal) * (1.0 - PARTIAL_GAIN) else chosen
        return chosen

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
        goal = self.problem.workload.goal
        for name in ELASTIC:
            least = cost(chosen, goal) * (1.0 + TIE)
            raised = (self.evaluate(replace(chosen.settings, **{name: v})) for v in self.draft.values(name))
            good = (c for c in raised if not c.shortfalls and c.verdict is chosen.verdict and cost(c, goal) <= least)
            chosen = next(good, chosen)
        return chosen


def _keeps(candidate: Candidate) -> bool:
    """Whether every device keeps its reserve; RAM is another question."""
    return all(short.device == "host" for short in candidate.shortfalls)


def _healthy(found: list[Candidate]) -> list[Candidate]:
    """Those that do not page, or all if every one does."""
    return [c for c in found if c.verdict is Verdict.FITS] or found


def _first_true(n: int, holds: Callable[[int], bool]) -> int:
    """The first index that holds, for a predicate that stays true; ``n`` if none does.

    Gallops (0, 1, 3, 7, …) before it bisects: with a good start the answer is near.
    """
    low, high = 0, 0
    while high < n and not holds(high):
        low, high = high + 1, 2 * high + 1
    return bisect_left(range(min(high, n)), True, low, key=holds)


class Part(NamedTuple):
    """Some expert tensors of a block that stay on the host (``pattern``) while the others move to the GPU."""

    pattern: str
    moved_bytes: int


def _parts(problem: Problem, block: int) -> tuple[Part, ...]:
    """Every proper, non-empty subset of a block's expert tensors that could stay on the host, most moved first."""
    sizes: dict[str, int] = {}
    for tensor in problem.model.tensors:
        if tensor.layer == block and tensor.role is Role.EXPERT:
            stem = tensor.name.split(".")[2]
            sizes[stem] = sizes.get(stem, 0) + tensor.n_bytes
    stems = sorted(sizes)
    subsets = [[s for i, s in enumerate(stems) if mask >> i & 1] for mask in range(1, 2 ** len(stems) - 1)]
    parts = [
        Part(rf"blk\.{block}\.({'|'.join(kept)})\.", sum(sizes.values()) - sum(sizes[s] for s in kept))
        for kept in subsets
    ]
    return tuple(sorted(parts, key=lambda part: (-part.moved_bytes, part.pattern)))


def search(problem: Problem, rules: tuple[Rule, ...], evaluator: Evaluator) -> Search:
    """Run the rules' first half, in order; later rules see what earlier ones decided, and the pins."""
    found = Search(problem, evaluator.under(problem.workload), Draft())
    for rule in rules:
        found.draft = pinned(problem, found.draft.narrowed(rule.propose(problem, found.draft, found.evaluate)))
    return found
