from planner.plans.decision import Fate
from planner.plans.settings import SplitMode
from policies import split
from tests.policies.problems import card, decision, explained, machine, problem, solved


def test_several_devices_share_whole_layers() -> None:
    plan = solved(machine(card(6, gpu_id="CUDA0"), card(6, gpu_id="CUDA1")))
    assert plan.chosen.settings.split_mode is SplitMode.LAYER
    mode = decision(plan, "split_mode")
    assert {a.value: a.outcome for a in mode.alternatives} == {"row": Fate.SLOWER, "tensor": Fate.UNSUPPORTED}


def test_the_layers_per_device_are_explained_by_what_stays_free() -> None:
    plan = solved(machine(card(6, gpu_id="CUDA0"), card(6, gpu_id="CUDA1")))
    found = decision(plan, "tensor_split")
    assert found.value == ",".join(f"{n:g}" for n in plan.chosen.settings.tensor_split)
    free = {f"{d.id} stays free": d.headroom_bytes for d in plan.chosen.memory.devices}
    assert {e.fact: e.value for e in found.because} == free


def test_a_card_with_more_room_takes_more_layers() -> None:
    plan = solved(machine(card(4, gpu_id="CUDA0"), card(9, gpu_id="CUDA1")))
    settings = plan.chosen.settings
    shares = dict(zip(settings.devices, settings.tensor_split, strict=True))
    headroom = [d.headroom_bytes for d in plan.chosen.memory.devices]
    assert shares["CUDA1"] > 0 and min(headroom) >= 1 << 30


def test_abstains_with_one_device() -> None:
    assert explained(split.RULE, problem(machine(card(20)))) == ()
