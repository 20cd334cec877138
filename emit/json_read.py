"""``moeplan.plan/1`` (and the plan inside ``moeplan.verified/1``) read back: a plan that was written earlier."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from emit.json_plan_shape import DecisionV1, PlanV1
from emit.wording import clean
from planner.errors import PlanFileError
from planner.facts.workload import Workload
from planner.plans.decision import Alternative, Decision, Evidence

MOST_DIGITS: Final = 20
MOST_TOKENS: Final = 1 << 30
MOST_SLOTS: Final = 256


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan as its file holds it.

    Args:
        fingerprint: of the model it was made for.
        argv: the whole command, program first.
        refused: True if it is no plan to start.
    """

    model: str
    fingerprint: str
    workload: Workload
    argv: tuple[str, ...]
    decisions: tuple[Decision, ...]
    refused: bool


def plan_from(text: str, origin: str) -> SavedPlan:
    """A plan's JSON.

    Args:
        origin: what to call the text in an error, e.g. its path.

    Raises:
        PlanFileError: neither ``moeplan.plan/1`` nor ``moeplan.verified/1``, which names the first key that is wrong;
            a size that cannot be, or no command.
    """
    from pydantic import ValidationError

    try:
        plan = _plan(text)
        _in_bounds(plan, origin)
    except _Huge as error:
        raise PlanFileError(clean(origin), expected="numbers of a plan", found=str(error)) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise PlanFileError(
            clean(origin),
            expected="moeplan.plan/1",
            found=f"{clean(where)}: {clean(first['msg'])}",
            advice="write one with: moeplan --auto MODEL --json -o PLAN.json",
        ) from None
    work = plan["workload"]
    return SavedPlan(
        model=plan["model"]["path"],
        fingerprint=plan["model"]["fingerprint"],
        workload=Workload(
            n_ctx=work["n_ctx"],
            n_parallel=work["n_parallel"],
            prompt_tokens=work["prompt_tokens"],
            answer_tokens=work["answer_tokens"],
            goal=work["goal"],
        ),
        argv=tuple(plan["argv"]),
        decisions=tuple(_decision(item) for item in plan["decisions"]),
        refused=plan["refusal"] is not None,
    )


class _Huge(Exception):
    """A number that no figure of a plan can be."""


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise _Huge(f"a number of {len(digits)} digits")
    return int(digits)


def _in_bounds(plan: PlanV1, origin: str) -> None:
    """Sizes of the workload, as the options that ask for them have them, and a command's first flag."""
    work = plan["workload"]
    sizes = {"n_parallel": MOST_SLOTS, "prompt_tokens": MOST_TOKENS, "answer_tokens": MOST_TOKENS, "n_ctx": MOST_TOKENS}
    for name, most in sizes.items():
        value: object = work.get(name)
        if isinstance(value, int) and not 1 <= value <= most:
            raise PlanFileError(clean(origin), expected=f"1 to {most} in workload.{name}", found=str(value))
    flags = plan["argv"][1:]
    if plan["refusal"] is None and not (flags and flags[0].startswith("-")):
        found = repr(flags[0]) if flags else "none"
        raise PlanFileError(clean(origin), expected="a program and its flags in argv", found=clean(found))


def _plan(text: str) -> PlanV1:
    from pydantic import TypeAdapter

    from emit.json_verified_shape import VerifiedV1

    try:
        data = json.loads(text, parse_int=_whole)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and data.get("schema") == "moeplan.verified/1":
        return TypeAdapter(VerifiedV1).validate_json(text)["plan"]
    return TypeAdapter(PlanV1).validate_json(text)


def _decision(item: DecisionV1) -> Decision:
    return Decision(
        rule=item["rule"],
        setting=item["setting"],
        value=item["value"],
        headline=item["headline"],
        confidence=item["confidence"],
        because=tuple(Evidence(**fact) for fact in item["because"]),
        alternatives=tuple(Alternative(**other) for other in item["alternatives"]),
        lossless=item["lossless"],
    )
