"""JSON of plans and models: the public shapes, as text and as JSON Schema.

The text is pure ASCII without control characters, so it may go to a terminal whatever a file holds.
"""

from __future__ import annotations

import json
from typing import Any

from emit.json_model import ModelDetailV1, model_shape
from emit.json_plan import plan_shape
from emit.json_plan_shape import PlanV1, Shape
from emit.json_verified import verification_shape
from emit.json_verified_shape import VerifiedV1
from planner.facts.model import Model
from planner.plans.plan import Plan
from planner.plans.verified import Verification


def plan_json(plan: Plan) -> str:
    """``moeplan.plan/1``, ending with a newline; with ``source`` and ``lint`` for a user's own flags.

    Raises:
        EngineError: this llama.cpp cannot do what the settings ask.
    """
    return _text(plan_shape(plan), _left_out(plan))


def verified_json(found: Verification) -> str:
    """``moeplan.verified/1``, ending with a newline. Raises as ``plan_json`` does."""
    return _text(verification_shape(found), {"plan": _left_out(found.plan)})


def _left_out(plan: Plan) -> set[str]:
    """Optional keys that a plan does not have."""
    out = set() if plan.lint is not None else {"source", "lint"}
    return out if plan.verified is not None else out | {"verified"}


def model_json(model: Model) -> str:
    """``moeplan.model/1``, ending with a newline."""
    return _text(model_shape(model), set())


def schemas() -> dict[str, dict[str, Any]]:
    """JSON Schemas by schema name, as shipped in ``docs/schema``."""
    shapes: dict[str, type[Shape]] = {
        "moeplan.plan/1": PlanV1,
        "moeplan.model/1": ModelDetailV1,
        "moeplan.verified/1": VerifiedV1,
    }
    return {
        name: {"$schema": "https://json-schema.org/draft/2020-12/schema"}
        | shape.model_json_schema(by_alias=True)
        | {"title": name}
        for name, shape in shapes.items()
    }


def schema_text(schema: dict[str, Any]) -> str:
    """A schema as its file holds it."""
    return json.dumps(schema, indent=2) + "\n"


def _text(shape: Shape, leave_out: Any) -> str:
    data = shape.model_dump(mode="json", by_alias=True, exclude=leave_out)
    text = json.dumps(data, indent=2, ensure_ascii=True, allow_nan=False)
    return text.replace("\x7f", "\\u007f") + "\n"
