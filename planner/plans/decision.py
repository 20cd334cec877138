"""Why a setting has its value: evidence, what else was considered, and the manual of the rule."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from planner.facts.reading import Source

Scalar = str | int | float | bool | None


class Fate(StrEnum):
    """What became of an alternative."""

    DOES_NOT_FIT = "does_not_fit"
    SLOWER = "slower"
    UNSUPPORTED = "unsupported"
    UNSAFE = "unsafe"
    LOSSY = "lossy"


class Confidence(StrEnum):
    MEASURED = "measured"
    DERIVED = "derived"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number a decision rests on; ``unit`` is ``bytes``, ``tokens``, ``bytes/s``, ``s`` or a plain noun."""

    fact: str
    value: Scalar
    unit: str
    source: Source


@dataclass(frozen=True, slots=True)
class Alternative:
    """A value that was not chosen.

    Args:
        by: how far off: bytes short, or the factor by which the turn is slower; None where neither applies.
    """

    value: Scalar
    outcome: Fate
    by: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class Decision:
    """One setting, decided.

    Args:
        rule: id of the rule, as ``moeplan explain`` takes it.
        setting: field of ``Settings`` (or of the machine budget, for headroom).
        headline: at most about 90 characters, enough alone, with its numbers.
        because: never empty.
    """

    rule: str
    setting: str
    value: Scalar
    headline: str
    confidence: Confidence
    because: tuple[Evidence, ...]
    alternatives: tuple[Alternative, ...] = ()
    lossless: bool = True

    def __post_init__(self) -> None:
        if not self.because:
            raise ValueError(f"decision of rule {self.rule!r} has no evidence")


@dataclass(frozen=True, slots=True)
class RuleDoc:
    """The manual of a rule: what ``moeplan explain ID`` prints and the docs hold.

    Args:
        id: stable kebab-case name.
        title: one line.
        settings: fields of ``Settings`` it decides.
        what, why: paragraphs.
        numbers: ``(figure, source)`` pairs.
        abstains: when it leaves the setting alone.
        references: upstream files, builds, issues.
    """

    id: str
    title: str
    settings: tuple[str, ...]
    what: str
    why: str
    numbers: tuple[tuple[str, str], ...]
    abstains: str
    references: tuple[str, ...] = ()
