from dataclasses import replace

from planner.cost.layout import used_before
from planner.facts.machine import Backend, DriverModel, Engine, Gpu, Overflow, Ram
from planner.facts.reading import Reading, Source
from planner.plans.decision import Fate
from planner.plans.rule import Draft
from planner.units import GIB
from policies import devices
from tests.policies.problems import card, decision, machine, problem, solved


def test_a_gpu_with_room_takes_part() -> None:
    assert solved(machine(card(12))).chosen.settings.devices == ("CUDA0",)


def test_abstains_without_a_gpu() -> None:
    plan = solved(machine())
    assert plan.chosen.settings.devices == ()
    assert decision(plan, "devices").value == "none"


def test_a_full_gpu_is_left_out_and_named() -> None:
    plan = solved(machine(card(12), card(1, id="CUDA1")))
    assert plan.chosen.settings.devices == ("CUDA0",)
    assert [c.code for c in plan.cautions if "CUDA1" in c.message] == ["device-left-out"]
    loser = decision(plan, "devices").alternatives[0]
    assert (loser.value, loser.outcome) == ("CUDA1", Fate.DOES_NOT_FIT)


def test_an_integrated_gpu_gives_way_to_one_with_its_own_memory() -> None:
    plan = solved(machine(card(20, id="Vulkan0", unified=True), card(12)))
    assert plan.chosen.settings.devices == ("CUDA0",)
    assert decision(plan, "devices").alternatives[0].outcome is Fate.SLOWER


def test_an_integrated_gpu_alone_takes_part() -> None:
    assert solved(machine(card(20, id="Vulkan0", unified=True))).chosen.settings.devices == ("Vulkan0",)


def test_local_devices_come_before_remote_ones() -> None:
    remote = card(20, id="RPC0", backend=Backend.RPC)
    assert solved(machine(remote, card(20))).chosen.settings.devices == ("CUDA0", "RPC0")


def test_a_gpu_whose_backend_the_build_lacks_is_left_out() -> None:
    found = machine(card(20))
    plan = solved(replace(found, engine=Engine("llama.cpp", 11549, backends=("cpu", "rpc"))))
    assert plan.chosen.settings.devices == ()
    assert decision(plan, "devices").alternatives[0].outcome is Fate.UNSUPPORTED
    with_cuda = replace(found, engine=Engine("llama.cpp", 11549, backends=("cpu", "cuda")))
    assert solved(with_cuda).chosen.settings.devices == ("CUDA0",)


def test_the_drivers_own_reserve_is_not_free_outside_wddm() -> None:
    reserved = replace(card(12), free_bytes=10 * GIB)
    assert used_before(reserved) == 14 * GIB
    assert used_before(replace(reserved, driver_model=DriverModel.WDDM)) == 12 * GIB


def test_a_card_that_slows_the_turn_is_left_idle_and_named() -> None:
    slow = card(20, id="CUDA1", h2d_pinned_bps=Reading(1e9, Source.MEASURED), memory_bps=Reading(5e9, Source.MEASURED))
    fast = card(20, h2d_pinned_bps=Reading(24e9, Source.MEASURED), memory_bps=Reading(900e9, Source.MEASURED))
    plan = solved(machine(slow, fast))
    assert plan.chosen.settings.devices == ("CUDA0",)
    said = decision(plan, "devices")
    price = said.alternatives[-1]
    assert price.value == "CUDA1,CUDA0" or price.value == "CUDA0,CUDA1"
    assert price.outcome is Fate.SLOWER
    assert price.detail.split(":")[0].endswith("x the time")
    assert f"with CUDA1, too, {price.detail.split(':')[0]}" in said.headline


def test_of_many_cards_half_as_many_are_tried_next() -> None:
    many = [card(20, id=f"CUDA{i}") for i in range(64)]
    assert [len(found) for found in sets(*many)] == [64, 32, 16, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert [len(found) for found in sets(*many[:9])] == [9, 4, 3, 2, 1, 0]
    assert [len(found) for found in sets(*many[:8])] == [8, 7, 6, 5, 4, 3, 2, 1, 0]


def test_the_best_link_comes_first() -> None:
    slow = card(20, h2d_pinned_bps=Reading(3e9, Source.MEASURED))
    fast = card(20, id="CUDA1", h2d_pinned_bps=Reading(24e9, Source.MEASURED))
    assert solved(machine(slow, fast), prompt_tokens=8192).chosen.settings.devices[0] == "CUDA1"


def never(*_: object) -> None:
    raise AssertionError("the rule prices nothing")


def sets(*cards: Gpu) -> tuple[tuple[str, ...], ...]:
    return dict(devices.RULE.propose(problem(machine(*cards)), Draft(), never).domains)["devices"]  # type: ignore


def link(rate: float, source: Source = Source.MEASURED) -> Reading:
    return Reading(rate, source)


def test_equal_cards_with_unmeasured_links_keep_llama_cpps_order() -> None:
    assert sets(card(20), card(20.5, id="CUDA1"))[0] == ("CUDA0", "CUDA1")
    guessed = link(24e9, Source.ASSUMED)
    assert sets(card(20, h2d_pinned_bps=link(3e9)), card(20, id="CUDA1", h2d_pinned_bps=guessed))[0][0] == "CUDA0"
    assert sets(card(20), card(20, id="CUDA1", h2d_pinned_bps=link(24e9)))[0][0] == "CUDA0"


def test_known_links_order_and_equal_ones_do_not_fall_back_on_free_memory() -> None:
    slow, fast = link(3e9, Source.REPORTED), link(24e9)
    cards = (card(20, h2d_pinned_bps=slow), card(20, id="CUDA1", h2d_pinned_bps=fast))
    assert sets(*cards)[0] == ("CUDA1", "CUDA0")
    assert sets(card(20, h2d_pinned_bps=fast), card(21, id="CUDA1", h2d_pinned_bps=fast))[0] == ("CUDA0", "CUDA1")
    remote = card(22, id="RPC0", backend=Backend.RPC, h2d_pinned_bps=link(90e9))
    assert sets(remote, *cards)[0] == ("CUDA1", "CUDA0", "RPC0"), "a remote one needs no link to be last"


def test_the_emptier_card_is_the_one_that_stays_when_there_are_fewer() -> None:
    assert sets(card(4), card(20, id="CUDA1")) == (("CUDA0", "CUDA1"), ("CUDA1",), ())
    fast = card(4, h2d_pinned_bps=link(24e9))
    assert sets(fast, card(20, id="CUDA1", h2d_pinned_bps=link(3e9))) == (("CUDA0", "CUDA1"), ("CUDA0",), ())


def test_a_device_that_shares_ram_has_no_more_free_than_ram() -> None:
    shared = card(24, id="MTL0", unified=True)
    plan = solved(machine(shared, ram=Ram(24 * GIB, 16 * GIB, overflow=Overflow.COMPRESS)))
    assert "MTL0 (16.0 GiB free)" in decision(plan, "devices").headline
    full = solved(machine(shared, ram=Ram(24 * GIB, GIB, overflow=Overflow.COMPRESS)))
    assert full.chosen.settings.devices == ()
