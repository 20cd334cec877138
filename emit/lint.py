"""What is wrong, risky or wasted in a user's own llama.cpp flags."""

from __future__ import annotations

from typing import Final

from emit import lint_context, lint_engine, lint_memory, lint_placement
from emit.flag_parse import ParsedFlags
from emit.lint_case import Case, Check
from planner.plans.plan import Lint, Plan

CHECKS: Final[tuple[Check, ...]] = (
    *lint_engine.CHECKS,
    *lint_placement.CHECKS,
    *lint_context.CHECKS,
    *lint_memory.CHECKS,
)
"""Every check, in the order of the findings."""


FATAL: Final = frozenset(
    {
        "unknown-flag", "removed-flag", "unsupported-flag", "flash-attn-needs-value", "quantised-v-without-fa",
        "kv-pair-refused", "kv-type-does-not-divide-head",
    }
)  # fmt: skip
"""Findings at which llama.cpp stops before it loads anything."""


def stops(findings: tuple[Lint, ...], parsed: ParsedFlags) -> tuple[str, ...]:
    """Why llama.cpp would not start, one clause per finding; a flag is unknown for sure only beside a whole --help."""
    sure = FATAL if parsed.dialect.lists_all else FATAL - {"unknown-flag"}
    return tuple(finding.message for finding in findings if finding.code in sure)


def lint(parsed: ParsedFlags, plan: Plan) -> tuple[Lint, ...]:
    """Findings, each with a stable code and flags to paste.

    Args:
        plan: the same settings with their predicted memory.
    """
    case = Case(parsed, plan)
    return tuple(dict.fromkeys(finding for check in CHECKS for finding in check(case)))
