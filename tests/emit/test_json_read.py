from __future__ import annotations

import json

import pytest

from emit.json_read import plan_from
from emit.json_v1 import plan_json
from planner.errors import PlanFileError
from tests.emit.plans import make_plan


def test_decisions_come_back() -> None:
    assert plan_from(plan_json(make_plan()), "plan.json").decisions == make_plan().decisions


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "the file"),
        ("[]", "the file"),
        (json.dumps({"schema": "moeplan.plan/2"}), "schema"),
        (plan_json(make_plan()).replace('"fits"', '"maybe"'), "verdict"),
        (plan_json(make_plan()).replace('"rule":', '"ruler": 1, "rule":'), "decisions.0.ruler"),
        (plan_json(make_plan()).replace('"file_bytes": ', '"file_bytes": -'), "model.file_bytes"),
    ],
)
def test_what_is_no_plan_is_named(text: str, where: str) -> None:
    with pytest.raises(PlanFileError) as caught:
        plan_from(text, "plan\x1b.json")
    assert where in str(caught.value) and "\x1b" not in str(caught.value)
