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


def lint(parsed: ParsedFlags, plan: Plan) -> tuple[Lint, ...]:
    """Findings, each with a stable code and flags to paste; ``fix`` is empty where the flag is to be left out.

    Args:
        plan: the same settings with their predicted memory.
    """
    case = Case(parsed, plan)
    return tuple(dict.fromkeys(finding for check in CHECKS for finding in check(case)))
