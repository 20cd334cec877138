from planner.facts.machine import Overflow, Ram
from planner.units import GIB
from tests.policies.problems import card, decision, machine, solved


def test_the_default_stays_where_ram_holds_it() -> None:
    plan = solved(machine(card(6)))
    assert plan.chosen.settings.cache_ram_mib == 8192
    assert decision(plan, "cache_ram_mib").alternatives == ()


def test_steps_down_before_anything_pages() -> None:
    plan = solved(machine(card(4), ram=Ram(16 * GIB, 13 * GIB, overflow=Overflow.SWAP)))
    assert plan.verdict == "fits"
    assert plan.chosen.settings.cache_ram_mib in (0, 1024, 2048, 4096)
    assert decision(plan, "cache_ram_mib").alternatives[0].value == 8192


def test_a_pinned_size_is_kept() -> None:
    assert solved(machine(card(6)), pins=(("cache_ram_mib", "512"),)).chosen.settings.cache_ram_mib == 512


def test_nothing_is_kept_from_a_model_that_pages() -> None:
    plan = solved(machine(card(4), ram=Ram(6 * GIB, 5 * GIB, overflow=Overflow.SWAP)))
    assert plan.verdict == "pages"
    assert plan.chosen.settings.cache_ram_mib == 0
