"""The engine confirms a plan: one that agrees, one that needs more, one that fails, and the real one."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner import search
from planner.demo import DemoModel
from planner.facts.machine import Engine, Machine
from planner.oracle import confirmed
from planner.plans.oracle import Ask, Confirmation
from planner.plans.plan import Plan
from planner.plans.settings import Tool
from planner.units import MIB
from policies import RULES
from probes import oracle
from tests.policies.problems import big_model, card, machine, problem

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]
posix = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in programs are scripts")

PROGRAM = f"""#!{sys.executable}
import os, pickle, sys
sys.path.insert(0, {str(ROOT)!r})
from emit.flags import parse_argv
from planner.cost.model import CostModel
from planner.plans.memory import total
from planner.plans.settings import Tool
folder = os.path.dirname(__file__)
with open(folder + "/runs", "a") as log:
    log.write("run\\n")
with open(folder + "/facts.pickle", "rb") as file:
    model, machine, surplus = pickle.load(file)
settings = parse_argv(tuple(sys.argv[1:]), model, machine, Tool.FIT_PARAMS).settings
memory = CostModel(model, machine, Tool.FIT_PARAMS).memory(settings)
for device in memory.devices:
    mib = [total(terms) >> 20 for terms in (device.model, device.context, device.compute)]
    print(device.id, mib[0], mib[1], mib[2] + surplus)
host = memory.host
print("Host", total(host.model) >> 20, total(host.context) >> 20, total(host.compute) >> 20)
"""
"""Reads the flags that it is given, and agrees with the prediction but for ``surplus`` MiB of every device."""


class Stand:
    """A folder with a stand-in for llama-fit-params."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "llama-fit-params"
        self.model = big_model()
        self.machine: Machine = machine(card(6), engine=Engine("llama.cpp", 11549, server=str(folder / "llama-server")))
        self.says(PROGRAM)
        self.needs(0)

    def says(self, text: str) -> None:
        self.path.write_text(text)
        self.path.chmod(0o755)

    def needs(self, surplus_mib: int) -> None:
        (self.path.parent / "facts.pickle").write_bytes(pickle.dumps((self.model, self.machine, surplus_mib)))

    @property
    def runs(self) -> int:
        log = self.path.parent / "runs"
        return log.read_text().count("run") if log.exists() else 0

    def plan(self, ask: Ask = Ask.CALL, **work: Any) -> Plan:
        given = problem(self.machine, self.model, **work)
        return confirmed(lambda extra: search.plan(given, RULES, extra), ask)


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_, **__: str(tmp_path / "cache"))
    (tmp_path / "engine").mkdir()
    return Stand(tmp_path / "engine")


def codes(plan: Plan) -> set[str]:
    return {caution.code for caution in plan.cautions if caution.code.startswith("oracle")}


@posix
def test_agreement_is_said_and_changes_nothing(stand: Stand) -> None:
    plan = stand.plan()
    assert plan.oracle is not None
    assert (plan.oracle.outcome, plan.oracle.build, plan.oracle.residual_bytes) == (Confirmation.CONFIRMED, 11549, 0)
    assert codes(plan) == set()
    assert replace(plan, oracle=None) == stand.plan(Ask.NEVER)
    assert plan.chosen.settings.n_cpu_moe > 0, "the flags that were read hold a placement"


@posix
def test_an_answer_is_asked_for_once(stand: Stand) -> None:
    first = stand.plan()
    again = stand.plan(Ask.STORED)
    assert stand.runs == 1
    assert first.oracle is not None and not first.oracle.stored
    assert again.oracle == replace(first.oracle, stored=True)
    stand.plan(n_ctx=8192)
    assert stand.runs == 2, "other settings are another question"


@posix
def test_fit_starts_nothing(stand: Stand) -> None:
    plan = stand.plan(Ask.STORED)
    assert stand.runs == 0
    assert plan.oracle is not None and plan.oracle.outcome is Confirmation.ABSENT
    assert "--auto" in plan.oracle.reason and codes(plan) == set()


@posix
def test_no_oracle_starts_nothing_and_uses_nothing(stand: Stand) -> None:
    stand.needs(300)
    stand.plan()
    runs = stand.runs
    plan = stand.plan(Ask.NEVER)
    assert (stand.runs, plan.oracle, codes(plan)) == (runs, None, set())


@posix
@pytest.mark.parametrize("first", [Ask.CALL, Ask.STORED])
def test_more_than_predicted_keeps_the_headroom(stand: Stand, first: Ask) -> None:
    stand.needs(300)
    before = stand.plan(Ask.NEVER)
    if first is Ask.STORED:
        stand.plan()
    plan = stand.plan(first)
    assert plan.oracle is not None and plan.oracle.outcome is Confirmation.DISAGREES
    assert plan.oracle.reserved == (("CUDA0", 300 * MIB),)
    assert codes(plan) == {"oracle-disagrees"}
    assert stand.runs == 2, "the plan that is shown was asked about, too"
    [device] = plan.chosen.memory.devices
    term = device.overhead[-1]
    assert (term.name, term.n_bytes) == ("oracle residual", 300 * MIB)
    assert device.headroom_bytes >= 1024 * MIB
    assert device.predicted_bytes - term.n_bytes <= before.chosen.memory.devices[0].predicted_bytes
    assert plan.chosen.settings != before.chosen.settings
    assert before.chosen.memory.devices[0].headroom_bytes - 300 * MIB < 1024 * MIB, "else it proves nothing"


@posix
def test_another_placement_may_lack_more(stand: Stand) -> None:
    stand.needs(300)
    later = 'surplus = surplus if open(folder + "/runs").read().count("run") == 1 else 500\nsettings ='
    stand.says(PROGRAM.replace("settings =", later, 1))
    plan = stand.plan()
    assert plan.oracle is not None and plan.oracle.reserved == (("CUDA0", 500 * MIB),)
    assert stand.runs == 3
    [device] = plan.chosen.memory.devices
    assert device.overhead[-1].n_bytes == 500 * MIB and device.headroom_bytes >= 1024 * MIB


@posix
def test_less_than_predicted_is_said_and_not_spent(stand: Stand) -> None:
    stand.says(PROGRAM.replace("mib[0], mib[1]", "mib[0] - 50, mib[1]"))
    plan = stand.plan()
    assert codes(plan) == {"oracle-disagrees"}
    assert plan.chosen == stand.plan(Ask.NEVER).chosen


@posix
def test_where_the_surplus_leaves_no_plan(stand: Stand) -> None:
    stand.needs(20_000)
    plan = stand.plan(pins=(("devices", "CUDA0"), ("n_gpu_layers", "25")))
    assert plan.refusal is not None
    assert plan.oracle is not None and plan.oracle.reserved == (("CUDA0", 20_000 * MIB),)
    assert codes(plan) == {"oracle-disagrees"} and stand.runs == 1


@posix
@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("#!/bin/sh\nkill -ABRT $$\n", "status -6"),
        ("#!/bin/sh\necho nonsense\n", "no table"),
        ("#!/bin/sh\nexec sleep 60\n", "did not end within 0.3 s"),
        ("no program at all", "could not start"),
    ],
)
def test_no_answer_is_said_and_the_plan_stands(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, program: str, says: str
) -> None:
    monkeypatch.setattr(oracle, "TIMEOUT_S", 0.3)
    stand.says(program)
    plan = stand.plan()
    assert plan.oracle is not None and plan.oracle.outcome is Confirmation.FAILED and says in plan.oracle.reason
    assert codes(plan) == {"oracle-failed"}
    assert plan.chosen == stand.plan(Ask.NEVER).chosen


@posix
@pytest.mark.parametrize(
    ("changes", "work", "says"),
    [
        ({"engine": None}, {}, "no llama.cpp was found"),
        ({"engine": Engine("ik_llama.cpp", server="/x/llama-server")}, {}, "no llama.cpp of a known build"),
        ({"engine": Engine("llama-cpp-python")}, {}, "on the CPU alone"),
        ({}, {"target_build": 9093}, "flags are for b9093"),
    ],
)
def test_what_is_not_asked(stand: Stand, changes: dict[str, Any], work: dict[str, Any], says: str) -> None:
    stand.machine = replace(stand.machine, **changes)
    plan = stand.plan(**work)
    assert stand.runs == 0
    assert plan.oracle is not None and plan.oracle.outcome is Confirmation.ABSENT and says in plan.oracle.reason
    assert codes(plan) == set()


@posix
def test_a_refusal_is_not_asked_about_but_a_users_own_flags_are(stand: Stand) -> None:
    refused = stand.plan(pins=(("n_cpu_moe", "0"), ("n_gpu_layers", "25")))
    assert (refused.oracle, stand.runs) == (None, 0)
    given, settings = problem(stand.machine, stand.model), refused.chosen.settings
    checked = confirmed(lambda extra: search.judge(given, RULES, settings, Tool.SERVER, extra), Ask.CALL)
    assert checked.refusal is not None and stand.runs == 1
    assert checked.oracle is not None and checked.oracle.outcome is Confirmation.CONFIRMED


def own(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """``memory.oracle`` of a plan as JSON."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["memory"]["oracle"]
    return found


def exact(said: dict[str, Any]) -> bool:
    return all(d["residual_bytes"] == 0 for d in said["differences"] if d["term"] != "compute")


@pytest.fixture
def real(engine: Path) -> Path:
    if not (engine / "llama-fit-params").is_file():
        pytest.skip("this llama.cpp has no llama-fit-params")
    return engine


@posix
@pytest.mark.parametrize("name", ["demo", "qwen3-30b-a3b"])
def test_the_real_engine_confirms_a_plan_for_a_device(
    run: Run, real: Path, rpc_server: str, tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    if name == "demo":
        demo: DemoModel = request.getfixturevalue("random_demo")
        model = Path(demo.path)
    else:
        model = request.getfixturevalue("zoo")(name)
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    device = ("--pin", "devices=RPC0")  # the CPU alone is faster than a device that is the same CPU
    common = (model, "--llama", real, "--rpc", rpc_server, "--vram", "8GiB", "--ram", "64GiB", *device)
    said = own(run("--auto", *common, "--json", env=env))
    assert (said["outcome"], said["source"], said["reserved_bytes"]) == ("confirmed", "asked", {})
    assert {d["device"] for d in said["differences"]} == {"RPC0", "Host"}
    assert exact(said)
    assert own(run("--fit", *common, "--json", env=env)) == said | {"source": "stored"}
    assert own_line(run("--auto", *common, env=env)).startswith("confirmed by llama.cpp")
    flags = ("--", "-c", "8192", "-ngl", "99", "-ncmoe", "40", "--rpc", rpc_server, "-np", "1", "-fit", "off")
    assert exact(own(run("check", *common, "--json", *flags, env=env)))
    assert json.loads(run("--auto", *common, "--no-oracle", "--json", env=env).stdout)["memory"]["oracle"] is None


def own_line(done: subprocess.CompletedProcess[str]) -> str:
    """The line below the memory table."""
    return next(line.strip() for line in done.stdout.splitlines() if "confirmed" in line)


@posix
def test_a_recorded_machine_has_no_oracle(
    run: Run, random_demo: DemoModel, machine_file: Callable[[str], Path]
) -> None:
    done = run("--auto", random_demo.path, "--machine", machine_file("desktop-16gb-wddm"), "--json")
    assert json.loads(done.stdout)["memory"]["oracle"] is None
