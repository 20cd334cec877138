"""``moeplan.plan/1`` read back: the decisions of a plan that was written earlier."""

from __future__ import annotations

from emit.json_plan_shape import DecisionV1, PlanV1
from emit.wording import clean
from planner.errors import PlanFileError
from planner.plans.decision import Alternative, Decision, Evidence


def decisions_from(text: str, origin: str) -> tuple[Decision, ...]:
    """Decisions of a plan's JSON.

    Args:
        origin: what to call the text in an error, e.g. its path.

    Raises:
        PlanFileError: not ``moeplan.plan/1``; names the first key that is wrong.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        plan = TypeAdapter(PlanV1).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise PlanFileError(
            clean(origin),
            expected="moeplan.plan/1",
            found=f"{clean(where)}: {clean(first['msg'])}",
            advice="write one with: moeplan --auto MODEL --json -o PLAN.json",
        ) from None
    return tuple(_decision(item) for item in plan["decisions"])


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
