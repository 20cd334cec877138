"""The fix of the memory findings: written in place of the flags of its settings, the command line fits."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from emit.flags import normal, parse_argv, setting_of
from emit.lint import lint
from planner.facts.machine import Engine, Machine, Ram
from planner.facts.model import Model
from planner.facts.workload import Workload
from planner.gguf.analyze import analyze
from planner.plans.plan import Plan
from planner.plans.rule import Problem
from planner.plans.settings import Tool
from planner.search import judge
from planner.units import GIB, MIB
from policies import RULES
from tests.policies.problems import big_model, card, machine

BUILD = Engine("llama.cpp", 11549, ("cuda",))
ONE = machine(card(6), engine=BUILD)
TWO = machine(card(4), card(4, id="CUDA1"), engine=BUILD)


def checked(line: str, found: Machine, model: Model, tool: Tool = Tool.SERVER) -> Plan:
    parsed = parse_argv(tuple(shlex.split(line)), model, found, tool)
    plan = judge(Problem(found, model, Workload()), RULES, parsed.settings, tool)
    return replace(plan, lint=lint(parsed, plan))


def memory_fixes(plan: Plan) -> set[str | None]:
    return {item.fix for item in plan.lint or () if item.code in ("out-of-memory", "no-headroom")}


def written(line: str, fix: str) -> str:
    """``fix`` in place of the flags of its settings: a flag with its value is two words here, a switch one."""
    changed = {setting_of(word) for word in shlex.split(fix) if word.startswith("-")} - {None}
    kept: list[str] = []
    skip = False
    for word in shlex.split(line):
        if normal(word).startswith("-"):
            skip = setting_of(word) in changed
        if not skip:
            kept.append(word)
    return shlex.join([*kept, *shlex.split(fix)])


FITS_AFTER = [
    ("-ngl 99 -ncmoe 0 -c 16384 -np 1", ONE),
    ("-ngl 99 -ncmoe 3 -c 131072 -np 4", ONE),
    ("-c 262144 -np 4", ONE),
    ("-c 65536", ONE),
    ("-ngl 99 -c 65536 -nkvo", ONE),
    ("-ngl 99 -ub 4096 -b 1024 -ncmoe 13 -c 131072 -np 2 -kvu", ONE),
    ("-ngl 99 -ncmoe 12 -nr --no-op-offload -ctxcp 4 -cram 0 -t 3 -np 1", ONE),
    ("-ngl 99 --n-cpu-moe 14 -ts 1,1 -c 16384", TWO),
    ("-ngl 99 --n-cpu-moe 16 -ts 1,0 -c 65536 -np 1", TWO),
    ("-ngl 99 -c 65536", TWO),
    ("-ngl 99 -c 65536 -sm row", TWO),
    ("-ngl 99 -c 4096 -dev CUDA1 -np 1", TWO),
]


@pytest.mark.parametrize(("line", "found"), FITS_AFTER, ids=[line for line, _ in FITS_AFTER])
def test_the_fix_fits(line: str, found: Machine) -> None:
    model = big_model()
    before = checked(line, found, model)
    assert before.refusal is not None and before.refusal.nearest is not None
    (fix,) = memory_fixes(before)
    assert fix, before.refusal.nearest.settings
    after = checked(written(line, fix), found, model)
    assert after.refusal is None, (fix, after.chosen.shortfalls)
    assert not memory_fixes(after)
    assert replace(after.chosen.settings, threads=None, threads_batch=None) == replace(
        before.refusal.nearest.settings, threads=None, threads_batch=None
    )


REPORTED = [
    ("qwen3-235b-a22b", "-ngl 99 --n-cpu-moe 72 -ts 1,1 -c 16384", (23.7, 23.7), 120),
    ("qwen3-30b-a3b", "-c 262144 -np 4", (23.7,), 58),
]


@pytest.mark.parametrize(("name", "line", "free", "ram"), REPORTED, ids=[case[0] for case in REPORTED])
def test_the_fix_fits_models_of_full_size(
    zoo: Callable[[str], Path], name: str, line: str, free: tuple[float, ...], ram: int
) -> None:
    """Half the context, which was the answer once, left the first two 10,490 and 6,062 MiB short."""
    cards = (card(gib, id=f"CUDA{i}") for i, gib in enumerate(free))
    found = machine(*cards, ram=Ram(128 * GIB, ram * GIB), engine=BUILD)
    model = analyze(str(zoo(name)))
    before = checked(line, found, model)
    (fix,) = memory_fixes(before)
    assert fix
    assert checked(written(line, fix), found, model).refusal is None


SAYS_NOTHING = [
    ("-ngl 99 -ot exps=CPU -c 1000000 -np 1", ONE, Tool.SERVER, "an -ot that would have to go"),
    ("-ot blk\\.1\\..*exps=CPU -ncmoe 4 -c 147456 -np 1", ONE, Tool.SERVER, "one -ot that would have to go"),
    ("-ngl 99 -cmoe -c 196608 -np 1 -ts 1,0", TWO, Tool.SERVER, "experts of every block stay where -cmoe says"),
    ("-ngl 99", ONE, Tool.BENCH, "the nearest plan is llama-server's"),
]


@pytest.mark.parametrize(("line", "found", "tool", "why"), SAYS_NOTHING, ids=[case[-1] for case in SAYS_NOTHING])
def test_where_no_flags_are_known_to_fit_nothing_is_said(line: str, found: Machine, tool: Tool, why: str) -> None:
    before = checked(line, found, big_model(), tool)
    assert before.refusal is not None and before.refusal.nearest is not None
    assert memory_fixes(before) == {None}


def test_no_fix_without_a_plan_that_fits() -> None:
    small = machine(card(1), ram=Ram(GIB, 16 * MIB), engine=BUILD)
    before = checked("-ngl 99 -c 65536 -np 1", small, big_model())
    assert before.refusal is not None and before.refusal.nearest is None
    assert memory_fixes(before) == {None}
