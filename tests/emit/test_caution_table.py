"""Every caution that the sources raise has its manual, and none is left over."""

from __future__ import annotations

import ast
from pathlib import Path

from emit.caution_table import CAUTIONS, VERDICTS, meaning_of, page
from planner.plans.verified import Finding

ROOT = Path(__file__).parents[2]


def raised() -> set[str]:
    found = set()
    for package in ("planner", "policies", "emit", "probes"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "Caution":
                    code = node.args[0]
                    assert isinstance(code, ast.Constant), f"{path}:{node.lineno} has no plain code"
                    found.add(str(code.value))
    return found


def test_every_code_has_a_manual() -> None:
    codes = [item.code for item in CAUTIONS]
    assert len(set(codes)) == len(codes) and set(codes) == raised()


def test_every_verdict_has_a_manual() -> None:
    assert {item.code for item in VERDICTS} == {*Finding, "inconclusive"}
    for item in VERDICTS:
        assert meaning_of(item.code) is item and page(item).startswith(f"verdict {item.code}\n")
