from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner import search
from planner.facts.workload import Goal
from planner.plans.plan import Plan
from planner.plans.settings import LoadMode, Settings
from planner.plans.verified import Attempt
from planner.search import Pricing
from planner.verify.proposals import Engine, proposals
from policies import RULES
from tests.policies.problems import big_model, card, machine, solved

ABLE = Engine(("--moe-cache-mib", "--spec-type"), lambda settings: True)


def priced(plan: Plan) -> Pricing:
    return search.pricing(plan, RULES)


def tried(plan: Plan, engine: Engine = ABLE, seen: frozenset[Settings] = frozenset()) -> tuple[Attempt, ...]:
    pricing = priced(plan)
    return proposals(pricing.problem, plan.chosen, pricing.candidate, engine, seen)


def names(found: tuple[Attempt, ...]) -> set[str]:
    return {name for item in found for name, _ in item.changes}


def test_changes_of_every_kind_that_fit_best_first() -> None:
    plan = solved(machine(card(8)))
    found = tried(plan)
    assert {"threads", "threads_batch", "n_ubatch", "load_mode"} <= names(found)
    assert [item.worth for item in found] == sorted((item.worth for item in found), reverse=True)
    pricing = priced(plan)
    assert all(pricing.candidate(item.settings).runs for item in found)
    assert all(item.basis for item in found)


def loosened(plan: Plan) -> Plan:
    """The plan as if nothing had been pinned."""
    return replace(plan, workload=replace(plan.workload, pins=()))


def test_blocks_move_to_the_gpu_where_there_is_room() -> None:
    roomy = loosened(solved(machine(card(8)), pins=(("n_cpu_moe", "20"),)))
    assert {item.settings.n_cpu_moe for item in tried(roomy) if item.changes[0][0] == "n_cpu_moe"} == {18, 19, 21}
    full = solved(machine(card(8)))
    assert not {_of(item, "n_cpu_moe") for item in tried(full)} & {full.chosen.settings.n_cpu_moe - 1}


def test_what_has_no_room_is_paid_for_with_experts_in_ram() -> None:
    """A full card has no room for a larger ubatch: the fewest blocks that make it move, unless that is pinned."""
    full = loosened(solved(machine(card(8)), pins=(("n_ubatch", "1024"),)))
    pricing, now = priced(full), full.chosen.settings
    larger = next(item for item in tried(full) if item.settings.n_ubatch > now.n_ubatch)
    assert [name for name, _ in larger.changes] == ["n_ubatch", "n_batch", "n_cpu_moe"]
    assert larger.settings.n_cpu_moe > now.n_cpu_moe and larger.part is Goal.TURN
    assert pricing.candidate(larger.settings).runs
    assert not pricing.candidate(replace(larger.settings, n_cpu_moe=now.n_cpu_moe)).runs
    held = solved(machine(card(8)), pins=(("n_cpu_moe", str(now.n_cpu_moe)),))
    assert all(item.settings.n_cpu_moe == now.n_cpu_moe for item in tried(held))


def test_what_is_predicted_to_cost_much_is_not_worth_a_trial() -> None:
    """Without op offload this prefill takes three times as long; turned off by hand, turning it on is worth one."""
    plan = solved(machine(card(8)))
    assert "op_offload" not in names(tried(plan))
    off = loosened(solved(machine(card(8)), pins=(("op_offload", "off"),)))
    found = next(item for item in tried(off) if _of(item, "op_offload"))
    assert found.basis == "predicted" and found.expected == found.worth > 0.05


def test_a_pinned_setting_is_left_alone() -> None:
    found = tried(solved(machine(card(8)), pins=(("threads", "8"), ("n_ubatch", "512"))))
    assert not {"threads", "n_ubatch"} & names(found)


def test_nothing_is_tried_twice() -> None:
    plan = solved(machine(card(8)))
    first = tried(plan)[0]
    assert first.settings not in {item.settings for item in tried(plan, seen=frozenset({first.settings}))}


def test_what_the_build_cannot_spell_is_out() -> None:
    def spells(settings: Settings) -> bool:
        return settings.load_mode is not LoadMode.MMAP

    assert "load_mode" not in names(tried(solved(machine(card(8))), Engine((), spells)))


def test_without_a_device_nothing_of_one_is_tried() -> None:
    assert names(tried(solved(machine()))) <= {"threads", "threads_batch", "n_ubatch", "n_batch", "load_mode"}


def test_the_pool_needs_the_flag_and_room_for_two_tokens() -> None:
    plan = solved(machine(card(20)), model=big_model(), pins=(("n_cpu_moe", "24"),))
    sizes = [dict(item.changes)["moe_cache_mib"] for item in tried(plan) if "moe_cache_mib" in names((item,))]
    assert sizes and min(map(_number, sizes)) >= 2 * 9 * 1024 * 4 // 64
    assert "moe_cache_mib" not in names(tried(plan, Engine((), lambda settings: True)))


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def test_a_change_of_ubatch_is_shown_by_the_larger_one() -> None:
    plan = loosened(solved(machine(card(8)), pins=(("n_ubatch", "512"),), prompt_tokens=600))
    larger, smaller = (next(i for i in tried(plan) if _of(i, "n_ubatch") == n) for n in (1024, 256))
    assert (larger.n_ubatch, smaller.n_ubatch) == (1024, 512)
    enough = loosened(solved(machine(card(8)), pins=(("n_ubatch", "512"),), prompt_tokens=512))
    assert 1024 not in {_of(item, "n_ubatch") for item in tried(enough)}


def test_what_the_model_does_not_see_is_unknown_and_still_ordered() -> None:
    threads = next(item for item in tried(solved(machine(card(8)))) if _of(item, "threads_batch"))
    assert threads.expected is None and threads.worth > 0 and threads.forecast == "gain unknown"
    off = loosened(solved(machine(card(8)), pins=(("op_offload", "off"),)))
    seen = next(item for item in tried(off) if _of(item, "op_offload"))
    assert seen.expected == seen.worth and seen.forecast.startswith("saves ")


@pytest.mark.parametrize(("goal", "other"), [("decode", Goal.PREFILL), ("prefill", Goal.DECODE)])
def test_what_does_not_touch_the_goal_is_not_tried(goal: str, other: Goal) -> None:
    found = tried(solved(machine(card(8)), goal=Goal(goal)))
    assert found and other not in {item.part for item in found}


def _of(item: Attempt, name: str) -> Any:
    return dict(item.changes).get(name, 0)


def test_several_devices_are_split_anew() -> None:
    plan = solved(machine(card(6), replace(card(6), id="CUDA1")))
    assert all(len(item.settings.tensor_split) == 2 for item in tried(plan))
