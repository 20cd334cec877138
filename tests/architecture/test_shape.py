"""Sizes, doors and completeness that no linter checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("planner", "probes", "policies", "emit")
MAX_FILE_LINES, MAX_FUNCTION_LINES = 300, 50
FILE_DOORS = (
    "planner/gguf/",
    "planner/demo/",
    "planner/files.py",
    "planner/cli/guard.py",
    "probes/host.py",
    "probes/disk_reads.py",
    "probes/script_",
    "probes/recorded.py",
)
OPENING_METHODS = {"open", "read_text", "read_bytes", "write_text", "write_bytes"}


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def calls(path: Path) -> Iterator[tuple[int, str, str]]:
    """Every call of the file: line, what it is called on (empty for a plain name), name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.lineno, "", node.func.id
            elif isinstance(node.func, ast.Attribute):
                yield node.lineno, ast.unparse(node.func.value), node.func.attr


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_fits_the_screen(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_FILE_LINES, "ask what two things this file is"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_module_says_what_it_is_for(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not tree.body or ast.get_docstring(tree)


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_doors(path: Path) -> None:
    inside = name_of(path).startswith(FILE_DOORS)
    for line, owner, name in calls(path):
        assert owner or name not in {"print", "eval", "exec", "input"}, f"line {line}: {name}()"
        opens = name in OPENING_METHODS and owner not in {"host", "archive"}  # a door itself; bytes in memory
        assert inside or not opens, f"line {line}: {owner}.{name}() outside of {FILE_DOORS}"


def test_every_policy_file_is_in_the_order() -> None:
    import policies

    files = {path.stem for path in (ROOT / "policies").glob("*.py")} - {"__init__"}
    assert {rule.propose.__module__.removeprefix("policies.") for rule in policies.RULES} == files
    ids = [rule.doc.id for rule in policies.RULES]
    assert len(ids) == len(set(ids))


def test_every_source_folder_has_a_test_folder() -> None:
    tests = {path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    folders = {Path(name).parent.as_posix() for name in tests}
    for path in sources():
        folder = path.parent.relative_to(ROOT).as_posix().removeprefix("planner").strip("/") or "."
        if path.read_text().strip() and folder not in ("facts", "plans", "."):
            assert folder in folders, f"no tests/{folder} for {name_of(path)}"
