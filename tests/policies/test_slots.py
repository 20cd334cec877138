from dataclasses import replace

from policies import slots
from tests.policies.problems import card, decision, explained, machine, problem, solved


def test_one_slot_unless_asked() -> None:
    plan = solved(machine(card(20)))
    assert (plan.chosen.settings.n_parallel, plan.chosen.settings.kv_unified) == (1, False)
    assert [d.setting for d in explained(slots.RULE, problem(machine(card(20))))] == ["n_parallel"]


def test_every_slot_has_a_cache_of_its_own() -> None:
    plan = solved(machine(card(20)), n_parallel=4, n_ctx=32768)
    assert plan.chosen.settings.kv_unified is False
    assert "4 slots of 8,192 tokens" in decision(plan, "n_parallel").headline
    assert decision(plan, "kv_unified").alternatives[0].value is True


def test_a_shared_cache_gives_each_slot_all_of_it() -> None:
    given = problem(machine(card(20)), n_parallel=4, n_ctx=32768, pins=(("kv_unified", "on"),))
    found = {d.setting: d for d in explained(slots.RULE, replace(given))}
    assert "4 slots of 32,768 tokens" in found["n_parallel"].headline
    assert found["kv_unified"].value is True and not found["kv_unified"].alternatives


def test_of_one_slot_sharing_is_not_mentioned() -> None:
    given = problem(machine(card(20)), pins=(("kv_unified", "on"),))
    (said,) = explained(slots.RULE, given)
    assert (said.setting, said.value) == ("n_parallel", 1)
