"""The joint search: branch and bound over everything the rules leave open.

Every combination of ubatch, load mode and devices gets a bound (the highest rung of the placement ladder that
weights and cache alone leave possible, and what it would cost); combinations are then priced in the order of their
bounds until none can win any more. Deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType
from typing import Final, NamedTuple

from planner.cost.evaluate import HOST_ID, Evaluator
from planner.cost.host import locks
from planner.cost.split import balanced_split
from planner.cost.tape import HOST
from planner.plans.compare import cost
from planner.plans.plan import Candidate, Verdict
from planner.plans.rule import Draft, Problem, Rule
from planner.plans.settings import LoadMode, Settings
from planner.search.candidates import TIE, beside, combination, emptiest, equals, healthy, keeps, slack, tie
from planner.search.ladder import Rung, first_true, parts, rungs
from planner.search.pins import pinned
from planner.search.pool import with_pool
from planner.units import MIB

PARTIAL_GAIN: Final = 0.01
"""A single-tensor override must save this share of the goal's cost to be worth its flag."""

CLIMB: Final = (16, 8, 4, 2, 1)
"""How far above the first rung that fits others are tried where layers left the GPU: there the compute buffer of the
layers on the CPU can shrink as more of them move back. After a step that fits, the next rungs are tried one by one."""

SPLIT_TOLERANCE: Final = 64 * MIB
"""Compute buffers that differ by less than this keep the split that was made for them."""

NOTHING: Final[Mapping[str, int]] = MappingProxyType({})

LADDER: Final = ("n_gpu_layers", "n_cpu_moe")

FILLS: Final = ("moe_cache_mib",)
"""Takes the VRAM that a placement leaves: sized after it."""

ELASTIC: Final = ("ctx_checkpoints", "cache_ram_mib")
"""Take what the others leave: searched at their least value, then raised, in this order, as far as nothing suffers."""


class Bound(NamedTuple):
    """One combination, with the rungs that may fit and the least the first of them can cost."""

    base: Settings
    rungs: tuple[Rung, ...]
    candidate: Candidate
    cost: float


@dataclass(slots=True)
class Search:
    """One problem under one list of rules."""

    problem: Problem
    evaluator: Evaluator
    draft: Draft
    compute: dict[tuple[object, ...], dict[str, int]] = field(default_factory=dict)
    """Compute buffers per device of the last candidate that fitted, by combination."""
    near: dict[tuple[str, ...], int] = field(default_factory=dict)
    """The highest rung that was possible last, by devices: where to look first."""
    sized: dict[tuple[object, ...], Candidate | None] = field(default_factory=dict)
    """What was found with another ubatch (``neighbours.with_ubatch``)."""

    def evaluate(self, settings: Settings) -> Candidate:
        """Price settings under the draft's reserve; several devices get their balanced split unless it is pinned.

        The split needs the compute buffers and they the split: the second round is based on the first one's.
        """
        if not self.splits(settings):
            return self.evaluator.candidate(settings, self.draft.reserve)
        known = self.compute.get(combination(settings), {})
        split = self._split(settings, known)
        first = self.evaluator.candidate(split, self.draft.reserve)
        found = beside(first)
        if all(abs(found[d] - known.get(d, 0)) <= SPLIT_TOLERANCE for d in settings.devices):
            return first
        again = self._split(settings, found)
        second = first if again == split else self.evaluator.candidate(again, self.draft.reserve)
        self.compute[combination(settings)] = beside(second)
        return min(first, second, key=lambda c: (not c.runs, -emptiest(c)))

    def best(self) -> Candidate | None:
        """The cheapest candidate that fits, at the longest open context that costs little more; or None."""
        goal = self.problem.workload.goal
        first: Candidate | None = None
        chosen: Candidate | None = None
        for n_ctx in self.draft.values("n_ctx"):
            limit = None if first is None else cost(first, goal) * (1.0 + slack(goal))
            found = self._best_at(n_ctx, limit)
            found = None if found is None else with_pool(self, found)
            if found is None or (first is not None and self._dearer(found, first)):
                break
            first, chosen = first or found, found
        return None if chosen is None else self._stretched(self._partial_layer(self._climbed(chosen)))

    def _dearer(self, longer: Candidate, shortest: Candidate) -> bool:
        """Whether a longer context costs more than it may."""
        goal = self.problem.workload.goal
        worse = longer.verdict is not shortest.verdict
        return worse or cost(longer, goal) > cost(shortest, goal) * (1.0 + slack(goal))

    def combinations(self, n_ctx: int) -> Iterator[Settings]:
        """Every combination of what is open, at the top of the ladder."""
        decided = {*LADDER, *FILLS, *ELASTIC, "n_ctx"}
        open_ = [(name, values) for name, values in self.draft.domains if name not in decided and len(values) > 1]
        least = {name: self.draft.values(name)[-1] for name in ELASTIC}
        base = replace(self.draft.settings(), n_ctx=n_ctx, **least)
        for values in product(*(values for _, values in open_)):
            chosen = replace(base, **dict(zip((name for name, _ in open_), values, strict=True)))
            if self._distinct(chosen):
                yield replace(chosen, n_batch=max(chosen.n_batch, chosen.n_ubatch))

    def _distinct(self, settings: Settings) -> bool:
        """False where an open value changes nothing: pinning without a device that does, repacking beside one."""
        if locks(settings, self.problem.machine):
            return settings.repack or True not in self.draft.values("repack")
        return settings.load_mode is LoadMode.MMAP or LoadMode.MMAP not in self.draft.values("load_mode")

    def at(self, base: Settings, rung: Rung) -> Settings:
        """``base`` on one rung."""
        return replace(base, n_gpu_layers=rung.n_gpu_layers, n_cpu_moe=rung.n_cpu_moe)

    def splits(self, settings: Settings) -> bool:
        """Whether the search decides what each device takes."""
        return len(settings.devices) > 1 and self.problem.pin("tensor_split") is None

    def _split(self, settings: Settings, compute: Mapping[str, int]) -> Settings:
        """``settings`` with layers balanced over several devices beside ``compute`` bytes and the reserve."""
        if not self.splits(settings):
            return settings
        reserve, beside_it = dict(self.draft.reserve), self.evaluator.cost.overhead(settings)
        taken = {d: beside_it.get(d, 0) + reserve.get(d, 0) + compute.get(d, 0) for d in settings.devices}
        return replace(settings, tensor_split=balanced_split(self.evaluator, settings, taken))

    def _best_at(self, n_ctx: int, limit: float | None) -> Candidate | None:
        """The cheapest candidate that fits at one context; None if none fits, or none at ``limit`` or less."""
        goal = self.problem.workload.goal
        bounds = [bound for base in self.combinations(n_ctx) if (bound := self._bound(base)) is not None]
        found: list[Candidate] = []
        for bound in sorted(bounds, key=lambda b: (b.candidate.verdict is Verdict.PAGES, b.cost)):
            taken = healthy(found)
            if (taken and self._beaten(bound, taken)) or (limit is not None and bound.cost > limit):
                break
            candidate = self._first_that_fits(bound)
            found += [candidate] if candidate is not None else []
        if not found:
            return None
        return min(equals(healthy(found), goal), key=self._preference)

    def _bound(self, base: Settings) -> Bound | None:
        """The highest rung that weights and cache alone leave possible, and the least it can cost; None if none."""
        ladder, near = rungs(self.draft, base.devices), self.near.get(base.devices, 0)
        rung = first_true(len(ladder), lambda i: self._holds(self.at(base, ladder[i])), near)
        self.near[base.devices] = rung
        if rung == len(ladder):
            return None
        bound = self.evaluator.bound(self._split(self.at(base, ladder[rung]), NOTHING), self.draft.reserve)
        if not bound.runs:
            return None  # what RAM lacks on this rung it lacks even more on lower ones
        return Bound(base, ladder[rung:], bound, cost(bound, self.problem.workload.goal))

    def _holds(self, settings: Settings, compute: Mapping[str, int] = NOTHING) -> bool:
        """Whether weights and cache leave ``compute`` bytes and the reserve free on every device.

        The same of RAM that devices share: what leaves them can be evicted there, as part of the mapped file.
        """
        memory, keep = self.evaluator.floor(self._split(settings, compute)), dict(self.draft.reserve)
        if not all(d.room_bytes >= keep.get(d.id, 0) + compute.get(d.id, 0) for d in memory.devices):
            return False
        shared = [d.id for d in memory.devices if d.shared_free_bytes is not None]
        more = sum(compute.get(device, 0) for device in shared)
        return not shared or self.evaluator.ram_holds(memory, keep.get(HOST_ID, 0) + more)

    def _beaten(self, bound: Bound, taken: list[Candidate]) -> bool:
        """Whether nothing from ``bound`` on can be as good as what was found."""
        pages = bound.candidate.verdict is Verdict.PAGES
        if pages and taken[0].verdict is Verdict.FITS:
            return True
        goal = self.problem.workload.goal
        least = min(cost(c, goal) for c in taken)
        return pages == (taken[0].verdict is Verdict.PAGES) and bound.cost > least * (1.0 + tie(goal))

    def _first_that_fits(self, bound: Bound) -> Candidate | None:
        """The highest rung that the devices hold, if RAM holds the rest: lower ones only ask more of RAM.

        Compute buffers hardly change from rung to rung, so one rung's tell where to look next; those of the same
        combination at another context tell where to begin.
        """
        ladder, known = bound.rungs, self.compute.get(combination(bound.base))
        index = 0 if known is None else min(self._roomy(bound, known), len(ladder) - 1)
        candidate = self.evaluate(self.at(bound.base, ladder[index]))
        while not keeps(candidate):
            index = max(index + 1, self._roomy(bound, beside(candidate)))
            if index >= len(ladder):
                return None
            candidate = self.evaluate(self.at(bound.base, ladder[index]))
        self.compute[combination(bound.base)] = beside(candidate)
        candidate = self._raised(bound, index, candidate)
        return candidate if candidate.runs else None

    def _raised(self, bound: Bound, index: int, candidate: Candidate) -> Candidate:
        """A rung above the one that fits, where its compute buffer leaves room for that."""
        while (higher := self._roomy(bound, beside(candidate))) < index:
            tried = self.evaluate(self.at(bound.base, bound.rungs[higher]))
            if not keeps(tried):
                return candidate
            candidate, index = tried, higher
        return candidate

    def _roomy(self, bound: Bound, compute: Mapping[str, int]) -> int:
        """The first rung on which weights and cache leave ``compute`` bytes and the reserve free on every device."""
        return first_true(len(bound.rungs), lambda i: self._holds(self.at(bound.base, bound.rungs[i]), compute))

    def _climbed(self, chosen: Candidate) -> Candidate:
        """The best of the rungs just above a choice that left layers on the CPU."""
        settings = chosen.settings
        ladder = rungs(self.draft, settings.devices)
        rung = Rung(settings.n_gpu_layers, settings.n_cpu_moe)
        if not settings.devices or settings.n_gpu_layers == ladder[0].n_gpu_layers:
            return chosen
        index = ladder.index(rung)
        for step in CLIMB:
            while (higher := self._better(chosen, ladder, index - step)) is not None:
                chosen, index, step = higher, index - step, 1
        return chosen

    def _better(self, chosen: Candidate, ladder: tuple[Rung, ...], index: int) -> Candidate | None:
        """The candidate on a rung, if it runs as well and costs less."""
        goal = self.problem.workload.goal
        if index < 0 or not self._holds(settings := self.at(chosen.settings, ladder[index])):
            return None
        found = self.evaluate(settings)
        return (
            found if found.runs and found.verdict is chosen.verdict and cost(found, goal) < cost(chosen, goal) else None
        )

    def _partial_layer(self, chosen: Candidate) -> Candidate:
        """Bring single expert tensors of the last host block to the GPU where that fits and pays."""
        settings, goal = chosen.settings, self.problem.workload.goal
        block = settings.n_cpu_moe - 1
        fewer = [n for n in self.draft.values("n_cpu_moe") if n < settings.n_cpu_moe and not settings.moe_cache_mib]
        if self.draft.values("override_tensor") or not fewer or not settings.devices:
            return chosen
        if settings.n_gpu_layers <= self.problem.model.n_layer:
            return chosen
        keep = dict(self.draft.reserve)
        spare = max(d.room_bytes - keep.get(d.id, 0) for d in chosen.memory.devices)
        for part in parts(self.problem, block):
            partial = replace(settings, n_cpu_moe=fewer[-1], override_tensor=((part.pattern, HOST),))
            if part.moved_bytes <= spare and self._holds(partial, beside(chosen)):
                tried = self.evaluate(partial)
                if tried.runs:
                    return tried if cost(tried, goal) <= cost(chosen, goal) * (1.0 - PARTIAL_GAIN) else chosen
        return chosen

    def _preference(self, candidate: Candidate) -> tuple[int, int]:
        """How far down the rules' domains its values stand (they list them best first), then least headroom."""
        settings = candidate.settings
        down = sum(
            values.index(getattr(settings, name))
            for name, values in self.draft.domains
            if name not in (*LADDER, *FILLS, *ELASTIC, "n_ctx") and getattr(settings, name) in values
        )
        return down, -min((device.room_bytes for device in candidate.memory.devices), default=0)

    def _stretched(self, chosen: Candidate) -> Candidate:
        """The chosen candidate with every elastic setting at its best value that still fits as well.

        Raising stops at the margin of RAM: what is elastic never takes it.
        """
        goal, margin = self.problem.workload.goal, dict(self.draft.reserve).get(HOST_ID, 0)
        for name in ELASTIC:
            least = cost(chosen, goal) * (1.0 + TIE)
            for value in self.draft.values(name):
                raised = self.evaluate(replace(chosen.settings, **{name: value}))
                spare = raised.memory.host.headroom_bytes
                roomy = spare is None or spare >= margin
                if raised.runs and roomy and raised.verdict is chosen.verdict and cost(raised, goal) <= least:
                    chosen = raised
                    break
        return chosen


def search(problem: Problem, rules: tuple[Rule, ...], evaluator: Evaluator) -> Search:
    """Run the rules' first half, in order; later rules see what earlier ones decided, and the pins."""
    found = Search(problem, evaluator.under(problem.workload), Draft())
    for rule in rules:
        found.draft = pinned(problem, found.draft.narrowed(rule.propose(problem, found.draft, found.evaluate)))
    return found
