from dataclasses import replace

from planner.cost.layout import used_before
from planner.facts.machine import Backend, DriverModel, Engine
from planner.facts.reading import Reading, Source
from planner.plans.decision import Fate
from planner.units import GIB
from tests.policies.problems import card, decision, machine, solved


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
    slow = card(3, id="CUDA1", h2d_pinned_bps=Reading(1e9, Source.MEASURED), memory_bps=Reading(5e9, Source.MEASURED))
    fast = card(20, h2d_pinned_bps=Reading(24e9, Source.MEASURED), memory_bps=Reading(900e9, Source.MEASURED))
    plan = solved(machine(slow, fast))
    assert plan.chosen.settings.devices == ("CUDA0",)
    assert "CUDA1 would make it slower" in decision(plan, "devices").headline


def test_the_best_link_comes_first() -> None:
    slow = card(20, h2d_pinned_bps=Reading(3e9, Source.MEASURED))
    fast = card(20, id="CUDA1", h2d_pinned_bps=Reading(24e9, Source.MEASURED))
    assert solved(machine(slow, fast), prompt_tokens=8192).chosen.settings.devices[0] == "CUDA1"
