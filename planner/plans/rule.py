"""The shape of a policy: it narrows settings before the search and explains the choice after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from planner.facts.machine import Gpu, Machine
from planner.facts.model import Model
from planner.facts.workload import Workload
from planner.plans.decision import Decision, RuleDoc
from planner.plans.plan import Candidate, Caution
from planner.plans.settings import Settings

if TYPE_CHECKING:
    from planner.facts.observed import Verified

Evaluate = Callable[[Settings], Candidate]
"""Memory, speed and verdict of any settings, under the headroom that was decided (memoised)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything that is given; ``verified``: what earlier verified runs teach, None without any."""

    machine: Machine
    model: Model
    workload: Workload
    verified: Verified | None = None

    def gpu(self, device: str) -> Gpu:
        return next(gpu for gpu in self.machine.gpus if gpu.id == device)

    def pin(self, setting: str) -> str | None:
        """The user's pinned value of a setting, or None."""
        return dict(self.workload.pins).get(setting)


@dataclass(frozen=True, slots=True)
class Draft:
    """What the rules so far leave open.

    Args:
        domains: ``(setting, values best first)``; a single value is decided.
        reserve: bytes to keep free per device id.
    """

    domains: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    reserve: tuple[tuple[str, int], ...] = ()
    cautions: tuple[Caution, ...] = ()

    def values(self, setting: str) -> tuple[Any, ...]:
        return dict(self.domains).get(setting, ())

    def narrowed(self, proposal: Proposal) -> Draft:
        """This draft with a proposal's domains replacing earlier ones of the same setting."""
        merged = dict(self.domains) | dict(proposal.domains)
        return replace(
            self,
            domains=tuple(merged.items()),
            reserve=proposal.reserve or self.reserve,
            cautions=self.cautions + proposal.cautions,
        )

    def settings(self) -> Settings:
        """The first value of every domain. Needs ``n_ctx`` and ``n_gpu_layers`` to be there."""
        return Settings(**{name: values[0] for name, values in self.domains})


@dataclass(frozen=True, slots=True)
class Proposal:
    """A rule's word before the search."""

    domains: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    reserve: tuple[tuple[str, int], ...] = ()
    cautions: tuple[Caution, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One policy file's export.

    Args:
        propose: ``(problem, draft, evaluate) -> Proposal``; pure. ``evaluate`` prices any settings
            under the draft's reserve.
        explain: ``(problem, draft, chosen, evaluate) -> decisions``; pure; empty when it abstains.
    """

    doc: RuleDoc
    propose: Callable[[Problem, Draft, Evaluate], Proposal]
    explain: Callable[[Problem, Draft, Candidate, Evaluate], tuple[Decision, ...]]
