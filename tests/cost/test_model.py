"""The whole of a memory prediction: sums, placement helpers, expert cache, errors, speed."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.model import CostModel
from planner.errors import OptionError
from planner.plans.memory import Memory, total
from planner.plans.settings import Settings
from planner.units import GIB, MIB
from tests.builders import make_gpu, make_layer, make_machine, make_model, make_settings

EXPERTS = 1_572_864
TWO = ("CUDA0", "CUDA1")


def cost(n_layer: int = 4) -> CostModel:
    return CostModel(make_model(n_layer), make_machine(make_gpu("CUDA0"), make_gpu("CUDA1")))


def weights(memory: Memory) -> int:
    return sum(total(d.model) for d in memory.devices) + total(memory.host.model)


@given(
    n_cpu_moe=st.integers(0, 6),
    n_gpu_layers=st.integers(0, 6),
    n_ctx=st.sampled_from([256, 5000, 65536]),
    n_ubatch=st.sampled_from([1, 16, 512, 4096]),
    devices=st.sampled_from([(), TWO[:1], TWO]),
    n_parallel=st.integers(1, 4),
)
def test_terms_sum_and_weights_are_conserved(
    n_cpu_moe: int, n_gpu_layers: int, n_ctx: int, n_ubatch: int, devices: tuple[str, ...], n_parallel: int
) -> None:
    model = cost()
    settings = make_settings(
        n_cpu_moe=n_cpu_moe, n_gpu_layers=n_gpu_layers, n_ctx=n_ctx, n_ubatch=n_ubatch, devices=devices,
        n_parallel=n_parallel,
    )  # fmt: skip
    memory = model.memory(settings)
    assert weights(memory) == model.model.file_bytes
    for device in memory.devices:
        parts = (device.model, device.context, device.compute, device.cache, device.overhead)
        assert device.predicted_bytes == sum(t.n_bytes for part in parts for t in part)
        assert all(t.n_bytes > 0 and t.detail for part in parts for t in part)
    assert memory.host.pinned_bytes <= memory.host.predicted_bytes


def test_a_device_that_takes_no_layer_still_costs_its_context() -> None:
    memory = cost().memory(make_settings(devices=TWO, tensor_split=(1.0, 0.0)))
    assert [bool(d.model) for d in memory.devices] == [True, False]
    assert all(d.overhead for d in memory.devices)


def test_helpers_name_places_and_bytes() -> None:
    model = cost()
    settings = make_settings(n_gpu_layers=4, n_cpu_moe=2)
    assert model.layers_on(settings) == ("CPU", "CUDA0", "CUDA0", "CUDA0", "CUDA0")
    assert model.host_expert_layers(settings) == (0, 1)
    assert model.expert_bytes(0) == EXPERTS
    assert model.host_expert_layers(make_settings(override_tensor=((r"blk\.3\.ffn_up_exps", "CPU"),))) == (3,)


def test_totals_come_from_the_machine() -> None:
    device = cost().memory(make_settings()).devices[0]
    assert (device.total_bytes, device.used_before_bytes) == (16 * GIB, GIB)
    assert device.headroom_bytes == 15 * GIB - device.predicted_bytes


def caches(settings: Settings) -> dict[str, int]:
    return {d.id: total(d.cache) for d in cost().memory(settings).devices}


def test_the_expert_cache_serves_host_experts_of_gpu_blocks() -> None:
    slot = EXPERTS // 8
    assert caches(make_settings(moe_cache_mib=2, n_cpu_moe=4)) == {"CUDA0": 2 * MIB // slot * slot}
    assert caches(make_settings(moe_cache_mib=2, n_cpu_moe=0)) == {"CUDA0": 0}
    assert caches(make_settings(moe_cache_mib=2, n_gpu_layers=1)) == {"CUDA0": 0}
    assert caches(make_settings(moe_cache_mib=512, n_cpu_moe=1)) == {"CUDA0": EXPERTS + slot}


def test_the_expert_cache_leaves_out_partly_overflowed_blocks() -> None:
    partly = make_settings(moe_cache_mib=512, override_tensor=((r"blk\.0\.ffn_up_exps", "CPU"),))
    assert caches(partly) == {"CUDA0": 0}


def test_the_expert_cache_is_shared_by_split() -> None:
    found = caches(make_settings(devices=TWO, moe_cache_mib=2, n_cpu_moe=4, tensor_split=(1.0, 1.0)))
    half = MIB // (EXPERTS // 8) * (EXPERTS // 8)
    assert found == {"CUDA0": half, "CUDA1": half}


def test_prediction_runs_in_a_context_of_its_own() -> None:
    layers = (*(make_layer(i) for i in range(3)), make_layer(3, nextn=True))
    model = CostModel(make_model(layers=layers), make_machine(make_gpu()))
    plain, drafting = (model.memory(make_settings(spec_type=s)) for s in (None, "draft-mtp"))
    assert {t.name for t in drafting.devices[0].context} == {"KV full", "draft KV full"}
    assert weights(drafting) > weights(plain)


@pytest.mark.parametrize(
    "changes",
    [
        {"devices": ("CUDA7",)},
        {"override_tensor": (("exps", "CUDA_Host"),)},
        {"type_k": "q3_K"},
        {"override_tensor": (("exps", "CUDA1"),)},
    ],
)
def test_what_cannot_be_placed_is_an_error(changes: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        cost().memory(make_settings(**changes))


def test_thousands_per_second() -> None:
    model = cost(48)
    settings = [make_settings(n_cpu_moe=i % 48, n_ctx=4096 * (1 + i % 4)) for i in range(400)]
    for s in settings:
        model.memory(s)
    start = time.perf_counter()
    for s in settings:
        model.memory(replace(s, cache_ram_mib=1))
    assert time.perf_counter() - start < 1.0  # 400 settings; a tenth of that is usual
