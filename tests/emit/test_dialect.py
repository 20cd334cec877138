from __future__ import annotations

import pytest

from emit.argv import argv, cautions
from emit.dialect import Dialect, caution, dialect_of
from emit.flag_table import FLAGS, NEWEST_BUILD
from planner.facts.machine import Engine
from planner.facts.workload import Workload
from planner.plans.plan import Caution
from planner.plans.settings import Tool
from tests.builders import make_machine
from tests.emit.plans import make_plan, measured_machine

FIT = next(flag for flag in FLAGS if flag.setting == "fit")


@pytest.mark.parametrize(("build", "has"), [(7406, False), (7407, True)])
def test_by_build(build: int, has: bool) -> None:
    assert Dialect(build).has(FIT, Tool.SERVER) is has and not Dialect(build).has(FIT, Tool.BENCH)


def test_by_list() -> None:
    assert Dialect(7000, frozenset({"-m", "--fit"})).has(FIT, Tool.SERVER)
    assert not Dialect(11549, frozenset({"-m"})).has(FIT, Tool.SERVER)
    assert Dialect(11549, frozenset({"--moe-cache-mib"})).has(FIT, Tool.SERVER)
    assert Dialect(11549, frozenset({"-m"})).has(FIT, Tool.FIT_PARAMS), "the list is llama-server's"


def test_where_it_comes_from() -> None:
    assert dialect_of(make_machine()) == Dialect(NEWEST_BUILD, assumed=True)
    engine = Engine("llama.cpp", 11000, flags=("-m",))
    assert dialect_of(make_machine(engine=engine)) == Dialect(11000, frozenset({"-m"}))
    assert dialect_of(make_machine(engine=engine), 9000) == Dialect(9000)


def test_what_is_not_known_is_said_once() -> None:
    unknown = caution(dialect_of(make_machine()))
    assert unknown is not None and unknown.code == "engine-unknown"
    newer = caution(Dialect(NEWEST_BUILD + 1))
    assert newer is not None and newer.code == "engine-newer"
    assert caution(Dialect(NEWEST_BUILD + 1, frozenset({"-m"}))) is None and caution(Dialect(NEWEST_BUILD)) is None
    plan = make_plan(machine=measured_machine(engine=None), cautions=(Caution("engine-unknown", "x"),))
    assert cautions(plan) == plan.cautions
    assert [item.code for item in cautions(make_plan(machine=measured_machine(engine=None)))] == [
        "example",
        "engine-unknown",
    ]


def test_the_command_starts_the_engine_that_was_found() -> None:
    machine = measured_machine(engine=Engine("llama.cpp", 11549, server="/opt/llama/llama-server"))
    assert argv(make_plan(machine=machine))[0] == "/opt/llama/llama-server"
    assert argv(make_plan())[0] == "llama-server"


def test_a_target_build_is_spelled_for() -> None:
    plan = make_plan(workload=Workload(target_build=10000))
    assert "--no-mmap" in argv(plan) and "--load-mode" not in argv(plan)
