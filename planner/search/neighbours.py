"""The choice again with the next ubatch, and the better of the two.

The search prices whole layers and refines only what it chose. What is freed by a smaller ubatch, or bought by a larger
one, can be single tensors: so the neighbours of the choice are searched to the end, too, and one that is better takes
its place. What they would buy or cost is what the plan tells as exchange rates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.plans.compare import cost
from planner.plans.plan import Candidate, Verdict
from planner.search.candidates import TIE
from planner.search.engine import Search


def under(searched: Search, **domains: tuple[Any, ...]) -> Search:
    """The same search with other open values."""
    draft = searched.draft
    changed = replace(draft, domains=tuple((dict(draft.domains) | domains).items()))
    return replace(searched, draft=changed)


def with_ubatch(searched: Search, chosen: Candidate, n_ubatch: int) -> Candidate | None:
    """The best at the choice's context, load mode and devices with another ubatch; None if nothing fits."""
    settings = chosen.settings
    kept = {name: (getattr(settings, name),) for name in ("n_ctx", "load_mode", "devices")}
    key = (n_ubatch, *kept.values())
    if key not in searched.sized:
        searched.sized[key] = under(searched, **kept, n_ubatch=(n_ubatch,)).best()
    return searched.sized[key]


def sizes(searched: Search, chosen: Candidate) -> tuple[int, ...]:
    """The next larger and smaller ubatch than the choice's that the rules leave open."""
    now, open_ = chosen.settings.n_ubatch, sorted(searched.draft.values("n_ubatch"))
    if now not in open_:
        return ()
    at = open_.index(now)
    return tuple((*open_[at + 1 : at + 2], *open_[max(at - 1, 0) : at]))


def improved(searched: Search, chosen: Candidate) -> Candidate:
    """The choice, or the neighbour that beats it, as long as one does."""
    while True:
        found = (with_ubatch(searched, chosen, n_ubatch) for n_ubatch in sizes(searched, chosen))
        better = next((c for c in found if c is not None and _beats(searched, c, chosen)), None)
        if better is None:
            return chosen
        chosen = better


def _beats(searched: Search, other: Candidate, chosen: Candidate) -> bool:
    if other.verdict is not chosen.verdict:
        return other.verdict is Verdict.FITS
    goal = searched.problem.workload.goal
    return cost(other, goal) < cost(chosen, goal) * (1.0 - TIE)
