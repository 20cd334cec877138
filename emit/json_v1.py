"""JSON of plans and models: the public shapes, as text and as JSON Schema.

The text is pure ASCII without control characters, so it may go to a terminal whatever a file holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from planner.facts.model import Model
from planner.plans.plan import Plan

if TYPE_CHECKING:
    from planner.plans.verified import Verification


def plan_json(plan: Plan) -> str:
    """``moeplan.plan/1``, ending with a newline; with ``source`` and ``lint`` for a user's own flags.

    Raises:
        EngineError: this llama.cpp cannot do what the settings ask.
    """
    from emit.json_plan import plan_shape

    return _text(_without(plan_shape(plan), _left_out(plan)))


def verified_json(found: Verification) -> str:
    """``moeplan.verified/1``, ending with a newline. Raises as ``plan_json`` does."""
    from emit.json_verified import verification_shape

    shape = verification_shape(found)
    return _text({**shape, "plan": _without(shape["plan"], _left_out(found.plan))})


def _left_out(plan: Plan) -> set[str]:
    """Optional keys that a plan does not have."""
    out = set() if plan.lint is not None else {"source", "lint"}
    return out if plan.verified is not None else out | {"verified"}


def _without(shape: Mapping[str, object], names: set[str]) -> dict[str, object]:
    return {key: value for key, value in shape.items() if key not in names}


def model_json(model: Model) -> str:
    """``moeplan.model/1``, ending with a newline; with ``routing`` where there is a recording."""
    from emit.json_model import model_shape

    return _text(model_shape(model))


def schemas() -> dict[str, dict[str, Any]]:
    """JSON Schemas by schema name, as shipped in ``docs/schema``."""
    from pydantic import TypeAdapter

    from emit.json_model import ModelDetailV1
    from emit.json_plan_shape import PlanV1
    from emit.json_verified_shape import VerifiedV1

    adapters: dict[str, TypeAdapter[Any]] = {
        "moeplan.plan/1": TypeAdapter(PlanV1),
        "moeplan.model/1": TypeAdapter(ModelDetailV1),
        "moeplan.verified/1": TypeAdapter(VerifiedV1),
    }
    return {
        name: {"$schema": "https://json-schema.org/draft/2020-12/schema"} | adapter.json_schema() | {"title": name}
        for name, adapter in adapters.items()
    }


def schema_text(schema: dict[str, Any]) -> str:
    """A schema as its file holds it."""
    return json.dumps(schema, indent=2) + "\n"


def _text(shape: Mapping[str, object]) -> str:
    """Raises ValueError where a number is not finite."""
    data = _unicode(shape)
    text = json.dumps(data, indent=2, ensure_ascii=True, allow_nan=False)
    return text.replace("\x7f", "\\u007f") + "\n"


def _unicode(value: object) -> object:
    """A file name that is not UTF-8 (lone surrogates) with its odd bytes as ``\\udcNN``."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_unicode(key): _unicode(item) for key, item in value.items()}
    return [_unicode(item) for item in value] if isinstance(value, tuple) else value
