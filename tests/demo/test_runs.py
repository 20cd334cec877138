"""Both demos load and generate in llama.cpp; the talking one answers in words."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from planner.demo import DemoModel


def bench(engine: Path, path: str) -> dict[str, object]:
    command = [engine / "llama-bench", "-m", path, "-p", "16", "-n", "8", "-r", "1", "-t", "2", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    rows: list[dict[str, object]] = json.loads(done.stdout)
    return rows[-1]


@pytest.mark.parametrize("demo", ["random_demo", "talking_demo"])
def test_llama_cpp_runs_it(engine: Path, demo: str, request: pytest.FixtureRequest) -> None:
    model: DemoModel = request.getfixturevalue(demo)
    row = bench(engine, model.path)
    assert row["n_gen"] == 8
    assert float(str(row["avg_ts"])) > 0
