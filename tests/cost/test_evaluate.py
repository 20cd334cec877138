"""Shortfalls: shared memory once, pinning under WDDM, and splits by bytes."""

from dataclasses import replace

from planner.cost.confirm import CorrectedCost
from planner.cost.evaluate import HOST_ID, Evaluator, pinned_limit
from planner.cost.model import CostModel
from planner.cost.split import balanced_split, layer_bytes
from planner.facts.machine import Backend, DriverModel, Machine, Ram
from planner.facts.workload import Workload
from planner.plans.memory import total
from planner.plans.settings import Tool
from planner.units import GIB, MIB
from tests.builders import make_gpu, make_machine, make_model, make_settings


def evaluator(machine: Machine) -> Evaluator:
    return Evaluator(CostModel(make_model(8), machine), Workload())


def test_a_device_that_shares_ram_counts_in_ram_too() -> None:
    settings = make_settings(devices=("MTL0",), n_ctx=1 << 20)
    gpu = make_gpu("MTL0", backend=Backend.METAL, used_bytes=0, total_bytes=12 * GIB)
    own, shared = (
        evaluator(make_machine(replace(gpu, unified=unified), ram=Ram(16 * GIB, 4 * GIB))) for unified in (False, True)
    )
    assert own.candidate(settings, ()).shortfalls == ()
    (short,) = shared.candidate(settings, ()).shortfalls
    assert short.device == HOST_ID
    assert short.needed_bytes >= shared.candidate(settings, ()).memory.devices[0].predicted_bytes


def test_wddm_pins_half_of_ram_at_most() -> None:
    linux = make_machine(make_gpu())
    windows = make_machine(make_gpu(driver_model=DriverModel.WDDM))
    assert pinned_limit(linux) is None
    assert pinned_limit(windows) == 32 * GIB
    settings = make_settings(n_cpu_moe=8)
    host = evaluator(windows).candidate(settings, ()).memory.host
    tight = replace(windows, ram=Ram(host.unevictable_bytes * 5 // 4, None))
    (short,) = evaluator(tight).candidate(settings, ()).shortfalls
    assert (short.device, short.needed_bytes) == (HOST_ID, host.pinned_bytes)
    assert short.available_bytes == pinned_limit(tight) < host.pinned_bytes


def test_a_split_fills_devices_evenly_after_the_experts_moved() -> None:
    machine = make_machine(make_gpu("CUDA0"), make_gpu("CUDA1"))
    price = evaluator(machine)
    settings = make_settings(devices=("CUDA0", "CUDA1"), n_cpu_moe=4)
    split = balanced_split(price, settings, {})
    weights = layer_bytes(price, settings)
    assert sum(split) == len(weights) == 9
    first = sum(weights[: int(split[0])])
    assert abs(2 * first - sum(weights)) <= max(weights)


def test_what_a_device_needs_besides_takes_layers_from_it() -> None:
    machine = make_machine(make_gpu("CUDA0"), make_gpu("CUDA1"))
    price = evaluator(machine)
    settings = make_settings(devices=("CUDA0", "CUDA1"))
    even = balanced_split(price, settings, {})
    uneven = balanced_split(price, settings, {"CUDA0": machine.gpus[0].total_bytes * 3 // 4})
    assert uneven[0] < even[0] and sum(uneven) == sum(even)


def test_the_bytes_of_the_blocks_are_those_that_memory_places() -> None:
    price = evaluator(make_machine(make_gpu("CUDA0")))
    settings = make_settings(n_cpu_moe=3, n_ctx=4096)
    device = price.memory(settings).devices[0]
    assert sum(layer_bytes(price, settings)) == total(device.model) + total(device.context)


def test_a_tied_head_weighs_what_its_copy_takes() -> None:
    tied = Evaluator(CostModel(make_model(2, tied=True), make_machine(make_gpu())), Workload())
    assert layer_bytes(tied, make_settings())[-1] == 512_000


def shared_machine(available: int | None, *, limit: int = 12 * GIB) -> Machine:
    gpu = make_gpu("MTL0", backend=Backend.METAL, unified=True, used_bytes=0, free_bytes=None, total_bytes=limit)
    return make_machine(gpu, ram=Ram(16 * GIB, available))


def test_what_stays_free_of_shared_memory_is_one_figure_for_both() -> None:
    settings = make_settings(devices=("MTL0",), n_cpu_moe=3)
    memory = evaluator(shared_machine(4 * GIB)).memory(settings)
    (device,), host = memory.devices, memory.host
    assert host.predicted_bytes > 0 and host.shared_bytes == device.predicted_bytes > 0
    left = 4 * GIB - device.predicted_bytes - host.predicted_bytes
    assert device.headroom_bytes == host.headroom_bytes == left
    assert device.room_bytes == 12 * GIB - device.predicted_bytes and device.is_bound_by_ram


def test_a_limit_under_the_ram_that_is_left_is_what_stays_free() -> None:
    settings = make_settings(devices=("MTL0",))
    memory = evaluator(shared_machine(15 * GIB, limit=2 * GIB)).memory(settings)
    (device,) = memory.devices
    assert device.headroom_bytes == device.room_bytes == 2 * GIB - device.predicted_bytes
    assert not device.is_bound_by_ram
    assert memory.host.headroom_bytes == 15 * GIB - device.predicted_bytes - memory.host.predicted_bytes


def test_shared_memory_of_an_unknown_amount_leaves_the_limit() -> None:
    memory = evaluator(shared_machine(None)).memory(make_settings(devices=("MTL0",)))
    assert memory.host.headroom_bytes is None
    assert memory.devices[0].headroom_bytes == memory.devices[0].room_bytes


def test_a_device_with_memory_of_its_own_takes_none_of_ram() -> None:
    machine = make_machine(make_gpu(), ram=Ram(16 * GIB, 4 * GIB))
    memory = evaluator(machine).memory(make_settings())
    assert memory.host.shared_bytes == 0 and memory.devices[0].shared_free_bytes is None
    assert memory.host.headroom_bytes == 4 * GIB - memory.host.predicted_bytes


def test_what_the_engine_needs_beyond_it_comes_off_shared_memory_once() -> None:
    machine, settings = shared_machine(4 * GIB), make_settings(devices=("MTL0",), n_cpu_moe=3)
    plain = CostModel(make_model(8), machine).memory(settings)
    extra = (("MTL0", 300 * MIB), ("Host", 50 * MIB))
    found = CorrectedCost(make_model(8), machine, Tool.SERVER, extra).memory(settings)
    assert found.devices[0].headroom_bytes == plain.devices[0].headroom_bytes - 350 * MIB
    assert found.host.headroom_bytes == found.devices[0].headroom_bytes
