"""``moeplan.plan/1`` (and the plan inside ``moeplan.verified/1``) read back: a plan that was written earlier."""

from __future__ import annotations

import json
from dataclasses import dataclass

from emit.json_plan_shape import DecisionV1, PlanV1
from emit.wording import clean
from planner.errors import PlanFileError
from planner.facts.workload import Workload
from planner.plans.decision import Alternative, Decision, Evidence


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


def decisions_from(text: str, origin: str) -> tuple[Decision, ...]:
    """Decisions of a plan's JSON. Raises as ``plan_from`` does."""
    return plan_from(text, origin).decisions


def plan_from(text: str, origin: str) -> SavedPlan:
    """A plan's JSON.

    Args:
        origin: what to call the text in an error, e.g. its path.

    Raises:
        PlanFileError: neither ``moeplan.plan/1`` nor ``moeplan.verified/1``; names the first key that is wrong.
    """
    from pydantic import ValidationError

    try:
        plan = _plan(text)
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


def _plan(text: str) -> PlanV1:
    from pydantic import TypeAdapter

    from emit.json_verified_shape import VerifiedV1

    try:
        data = json.loads(text)
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
