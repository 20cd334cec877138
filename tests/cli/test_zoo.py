"""Every published layout on a 16 GiB desktop: a plan or a reasoned refusal, and JSON that keeps its schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]
Named = Callable[[str], Path]


def names() -> list[str]:
    script = ROOT.parent / "shared" / "zoo" / "zoo.py"
    if not script.exists():
        return []
    done = subprocess.run([sys.executable, str(script), "--list"], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    text = (ROOT / "docs" / "schema" / "moeplan.plan-1.json").read_text()
    return jsonschema.Draft202012Validator(json.loads(text))


@pytest.fixture(scope="module")
def layouts(zoo: Named) -> dict[str, Path]:
    """Every layout, written side by side: most of the time goes into vocabularies."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(names(), pool.map(zoo, names()), strict=True))


@pytest.mark.parametrize("name", names())
def test_fit(
    run: Run, layouts: dict[str, Path], machine_file: Named, schema: jsonschema.Draft202012Validator, name: str
) -> None:
    done = run("--fit", layouts[name], "--machine", machine_file("desktop-16gb-wddm"), "--json")
    assert done.stderr == ""
    plan = json.loads(done.stdout)
    schema.validate(plan)
    assert done.returncode == (1 if plan["verdict"] == "refused" else 0)
    if plan["refusal"]:
        assert plan["refusal"]["shortfalls"]
    else:
        [device] = plan["memory"]["devices"] or [None]
        assert device is None or device["headroom_bytes"] >= 1 << 30
        decided = {decision["setting"] for decision in plan["decisions"]}
        assert {"n_ctx", "n_cpu_moe", "n_ubatch", "type_k", "load_mode", "threads"} <= decided


def test_the_schema_refuses_another_shape(schema: jsonschema.Draft202012Validator) -> None:
    assert not schema.is_valid({"schema": "moeplan.plan/1"})
    assert not schema.is_valid({"schema": "moeplan.plan/2"})
