"""Mapped, pinned and anonymous bytes by load mode (``make_cpu_buft_list``, src/llama-model.cpp, b11434)."""

from __future__ import annotations

import pytest

from planner.cost.model import CostModel
from planner.facts.machine import Backend
from planner.facts.model import Role, Tensor
from planner.plans.memory import HostMemory, total
from planner.plans.settings import LoadMode
from tests.builders import make_gpu, make_machine, make_model, make_settings

VOCAB, EXPERTS = 512_000, 1_572_864


def host(backend: Backend = Backend.CUDA, **changes: object) -> HostMemory:
    gpu = make_gpu(backend=backend)
    return CostModel(make_model(), make_machine(gpu)).memory(make_settings(n_cpu_moe=2, **changes)).host


@pytest.mark.parametrize("mode", [LoadMode.MMAP, LoadMode.MMAP_MLOCK])
def test_mmap_maps_what_is_read_on_the_host(mode: LoadMode) -> None:
    found = host(load_mode=mode)
    assert found.mapped_bytes == total(found.model) == VOCAB + 2 * EXPERTS


@pytest.mark.parametrize("mode", [LoadMode.NONE, LoadMode.MLOCK, LoadMode.DIO])
def test_other_modes_pin_weights_where_a_cuda_device_takes_part(mode: LoadMode) -> None:
    found = host(load_mode=mode)
    assert found.mapped_bytes == 0
    assert found.pinned_bytes >= total(found.model)
    assert found.unevictable_bytes == found.predicted_bytes


def test_no_host_leaves_only_buffers_pinned() -> None:
    found = host(load_mode=LoadMode.NONE, no_host=True)
    (output,) = found.overhead
    assert found.pinned_bytes == total(found.compute) + output.n_bytes


def test_rpc_devices_and_cpu_only_pin_nothing() -> None:
    assert host(Backend.RPC, load_mode=LoadMode.NONE).pinned_bytes == 0
    assert host(load_mode=LoadMode.NONE, devices=()).pinned_bytes == 0


def test_repacked_copies_are_anonymous_even_when_mapped() -> None:
    quantised = tuple(
        Tensor(t.name, "Q4_K", t.shape, t.n_bytes, t.layer, t.role) if t.role is Role.EXPERT else t
        for t in make_model().tensors
    )
    cost = CostModel(make_model(tensors=quantised), make_machine())
    repacked = cost.memory(make_settings(devices=(), load_mode=LoadMode.MMAP)).host
    plain = cost.memory(make_settings(devices=(), load_mode=LoadMode.MMAP, repack=False)).host
    assert plain.mapped_bytes - repacked.mapped_bytes == 4 * EXPERTS
    assert repacked.predicted_bytes == plain.predicted_bytes


def test_lazy_tables_count_as_mapped_but_not_against_ram() -> None:
    table = Tensor("per_layer_token_embd.weight", "Q8_0", (256, 1000), 5 << 30, None, Role.LOOKUP)
    model = make_model(tensors=(*make_model().tensors, table))
    found = CostModel(model, make_machine(make_gpu())).memory(make_settings()).host
    assert found.lazy_bytes == found.mapped_bytes == 5 << 30
    assert found.headroom_bytes == found.available_bytes - found.predicted_bytes + (5 << 30)  # type: ignore[operator]
