"""The result: a plan, or a refusal with what is short and what would fit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from planner.facts.machine import Machine
from planner.facts.model import Model
from planner.facts.workload import Workload
from planner.plans.decision import Decision
from planner.plans.memory import Memory
from planner.plans.oracle import Oracle
from planner.plans.settings import Settings
from planner.plans.speed import Speed

if TYPE_CHECKING:
    from planner.facts.observed import Verified


class Verdict(StrEnum):
    """``pages``: it runs, but the hot set is larger than RAM and is read from disk."""

    FITS = "fits"
    PAGES = "pages"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Caution:
    """Something the user should know; ``code`` is stable kebab-case."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A device (or ``host``) that lacks memory, headroom already taken off ``available_bytes``."""

    device: str
    needed_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """Settings with what they cost.

    Args:
        shortfalls: what lacks memory; empty when they fit.
        objections: why llama.cpp would refuse to start with them, whatever the memory.
    """

    settings: Settings
    memory: Memory
    speed: Speed
    verdict: Verdict
    shortfalls: tuple[Shortfall, ...] = ()
    objections: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether it starts and keeps every reserve (it may still page)."""
        return not self.shortfalls and not self.objections


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing fits: the smallest candidate's shortfalls, and the nearest plan that would fit, if any."""

    shortfalls: tuple[Shortfall, ...]
    nearest: Candidate | None
    reason: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one more step of a knob buys or costs."""

    change: str
    effect: str


@dataclass(frozen=True, slots=True)
class Lint:
    """A finding about a user's own flags.

    Args:
        fix: flags to write instead; empty where the flag is to be left out, None where no flag is known to help.
    """

    code: str
    flag: str
    message: str
    fix: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """A full answer. For a refusal, ``chosen`` is the candidate that came closest."""

    machine: Machine
    model: Model
    workload: Workload
    chosen: Candidate
    decisions: tuple[Decision, ...] = ()
    exchange: tuple[Exchange, ...] = ()
    cautions: tuple[Caution, ...] = ()
    refusal: Refusal | None = None
    lint: tuple[Lint, ...] | None = None
    """Set (possibly empty) when the settings are a user's own flags."""
    oracle: Oracle | None = None
    """The engine's word on the memory; None if it was not to be asked."""
    verified: Verified | None = None
    """What earlier verified runs taught this plan; None without any."""
    port: int | None = None
    """Where the user wants it to serve; None leaves the usual one."""

    @property
    def verdict(self) -> Verdict:
        return Verdict.REFUSED if self.refusal else self.chosen.verdict
