"""Who may import whom: the contract in ``pyproject.toml`` holds, and it bites."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("planner", "probes", "policies", "emit")


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_contract_is_kept() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("policies/planted.py", "import policies.devices", "A policy never imports another policy"),
        ("probes/planted.py", "import planner.plans.plan", "Measuring and parsing know nothing of plans"),
        ("emit/planted.py", "import os", "Facts, plans, costs, policies, search and emitters do no I/O"),
        ("planner/cli/planted.py", "import planner.cost.model", "The cli talks to the pipeline, not to the parts"),
        ("planner/planted.py", "", "Every planner module has a declared layer"),
        ("planner/gguf/planted.py", "import subprocess", "Only probes.host starts processes"),
    ],
)
def test_contract_bites(tmp_path: Path, file: str, line: str, contract: str) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / file).write_text(f"{line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert f"{contract} BROKEN" in done.stdout
