from planner.facts.machine import Overflow, Ram
from planner.plans.decision import Fate
from planner.units import GIB, MIB
from tests.policies.problems import card, decision, machine, solved, windows


def left(plan):
    return plan.chosen.memory.devices[0].headroom_bytes


def test_one_gib_stays_free_by_default() -> None:
    for found in (machine(card(6)), windows(card(6))):
        plan = solved(found)
        assert plan.verdict == "fits"
        assert left(plan) >= GIB


def test_the_desktop_and_the_driver_context_come_off_first() -> None:
    device = solved(windows(card(6))).chosen.memory.devices[0]
    assert device.used_before_bytes == 18 * GIB
    assert sum(t.n_bytes for t in device.overhead) > 0
    assert device.headroom_bytes == device.total_bytes - device.used_before_bytes - device.predicted_bytes


def test_wddm_does_not_go_under_one_gib_when_asked_to() -> None:
    plan = solved(windows(card(6)), headroom_bytes=100 * MIB)
    assert left(plan) >= GIB
    assert "headroom-floor" in [c.code for c in plan.cautions]


def test_elsewhere_the_wish_is_obeyed_both_ways() -> None:
    less, more = (solved(machine(card(6)), headroom_bytes=n) for n in (100 * MIB, 3 * GIB))
    assert 100 * MIB <= left(less) < GIB
    assert left(more) >= 3 * GIB
    assert less.chosen.settings.n_cpu_moe < more.chosen.settings.n_cpu_moe


def test_explains_with_what_is_really_left() -> None:
    plan = solved(machine(card(6)))
    said = decision(plan, "headroom")
    assert f"{left(plan) / MIB:,.0f} MiB stay free" in said.headline
    assert said.alternatives[0].outcome is Fate.UNSAFE


def test_abstains_without_devices() -> None:
    assert not [d for d in solved(machine()).decisions if d.rule == "headroom"]


def test_shared_memory_is_explained_with_what_ram_leaves() -> None:
    found = machine(card(24, id="MTL0", unified=True), ram=Ram(24 * GIB, 16 * GIB, overflow=Overflow.COMPRESS))
    plan = solved(found)
    device, host = plan.chosen.memory.devices[0], plan.chosen.memory.host
    assert left(plan) == host.headroom_bytes == 16 * GIB - device.predicted_bytes - host.predicted_bytes
    said = decision(plan, "headroom")
    assert f"its own limit is {device.room_bytes / MIB:,.0f} MiB away" in said.headline
    assert f"{left(plan) / MIB:,.0f} MiB of the RAM it shares stay free" in said.headline
    assert ("RAM that stays free", left(plan)) in [(e.fact, e.value) for e in said.because]


def test_what_less_would_risk_depends_on_who_hands_out_the_memory() -> None:
    linux, wddm = (decision(solved(f), "headroom").alternatives[0].detail for f in (machine(card(6)), windows(card(6))))
    assert "allocation fails" in linux and "random" not in linux
    assert "WDDM" in wddm and "collapsed" in wddm
