"""Which measured figure a rate is taken from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.cost.behind import assumed_rates
from planner.cost.rates import (
    ASSUMED_DISK_BPS,
    ASSUMED_PINNED_BPS,
    ASSUMED_RAM_BPS,
    ASSUMED_VRAM_BPS,
    CORE_FLOPS,
    FLOPS_PER_BYTE,
    MAPPED_SHARE,
    rates_of,
)
from planner.facts.machine import Backend, Cpu, Disk, Gpu, Machine, Os, Ram, ReadPoint
from planner.facts.reading import Reading, Source
from planner.units import GIB
from tests.builders import make_machine, make_model, make_settings

KIB = 1024


def measured(value: float) -> Reading:
    return Reading(value, Source.MEASURED)


CURVE = tuple(
    ReadPoint(block * KIB, depth, measured(rate))
    for block, depth, rate in (
        (256, 1, 0.5e9), (256, 8, 1.1e9), (1024, 1, 1.0e9), (1024, 8, 2.0e9), (4096, 1, 2.5e9), (4096, 8, 2.4e9),
    )
)  # fmt: skip


@pytest.mark.parametrize(
    ("slice_kib", "rate"), [(256, 1.1e9), (300, 1.1e9), (600, 2.0e9), (1024, 2.0e9), (9999, 2.4e9), (None, 2.0e9)]
)
def test_the_disk_caps_paging_at_the_expert_slice_and_the_deepest_queue(slice_kib: int | None, rate: float) -> None:
    machine = replace(make_machine(), disk=Disk("/m", read_curve=CURVE, mapped_bps=measured(9e9)))
    assert rates_of(machine, slice_kib and slice_kib * KIB).disk.value == rate


@pytest.mark.parametrize(("slice_kib", "alone"), [(256, 0.5e9), (600, 1.0e9), (9999, 2.5e9), (None, 1.0e9)])
def test_paging_that_was_not_measured_is_a_share_of_one_read_at_a_time(slice_kib: int | None, alone: float) -> None:
    reading = rates_of(replace(make_machine(), disk=Disk("/m", read_curve=CURVE)), slice_kib and slice_kib * KIB).disk
    assert reading.value == pytest.approx(alone * MAPPED_SHARE)
    assert reading.source is Source.ASSUMED and "mapping not measured" in reading.method


def test_a_plan_that_pages_names_the_disk_among_assumed_rates() -> None:
    curve = replace(make_machine(), disk=Disk("/m", read_curve=CURVE))
    known = replace(curve, disk=Disk("/m", read_curve=CURVE, mapped_bps=measured(0.3e9)))
    settings = make_settings(devices=(), n_gpu_layers=0)
    assert "disk 0.19 GB/s" in assumed_rates(rates_of(curve), settings, pages=True)
    assert not any(word.startswith("disk") for word in assumed_rates(rates_of(curve), settings, pages=False))
    assert not any(word.startswith("disk") for word in assumed_rates(rates_of(known), settings, pages=True))


def test_a_mapping_caps_it_and_never_raises_it() -> None:
    slow = replace(make_machine(), disk=Disk("/m", read_curve=CURVE, mapped_bps=measured(0.3e9)))
    fast = replace(make_machine(), disk=Disk("/m", read_curve=CURVE, mapped_bps=measured(9e9)))
    alone = replace(make_machine(), disk=Disk("/m", mapped_bps=measured(0.3e9)))
    assert [rates_of(m, 1024 * KIB).disk.value for m in (slow, fast, alone)] == [0.3e9, 2.0e9, 0.3e9]


def test_an_unmeasured_disk_is_assumed() -> None:
    for machine in (make_machine(), replace(make_machine(), disk=Disk("/m"))):
        reading = rates_of(machine).disk
        assert (reading.value, reading.source) == (ASSUMED_DISK_BPS, Source.ASSUMED)


def test_the_slice_is_one_matrix_of_one_expert() -> None:
    model = make_model(4)
    assert model.expert_slice_bytes == 256 * 128 * 2
    dense = replace(model, tensors=tuple(t for t in model.tensors if "exps" not in t.name))
    assert dense.expert_slice_bytes is None


def card(name: str, gib: int, **facts: object) -> Gpu:
    return Gpu("CUDA0", gib * GIB, name=name, backend=Backend.CUDA, **facts)  # type: ignore[arg-type]


def desktop(gpu: Gpu, cpu: str = "AMD Ryzen 7 7700X 8-Core Processor") -> Machine:
    return Machine(Os.LINUX, Ram(64 * GIB), Cpu(cpu, physical_cores=8), (gpu,))


def test_a_card_that_reports_nothing_is_taken_at_what_its_maker_publishes() -> None:
    found = rates_of(desktop(card("NVIDIA GeForce RTX 3090", 24))).gpus["CUDA0"]
    assert (found.memory.value, found.memory.source) == (936e9, Source.ASSUMED)
    assert found.memory.method == "NVIDIA GeForce RTX 3090: 936 GB/s published"
    assert found.f16.value == 142.3e12
    assert found.pinned.value == pytest.approx(23.46e9, rel=0.01)


def test_what_the_driver_says_beats_the_table() -> None:
    gpu = card("NVIDIA GeForce RTX 3090", 24, memory_bps=measured(9e11), f16_flops=measured(1e13))
    found = rates_of(desktop(gpu)).gpus["CUDA0"]
    assert (found.memory.value, found.f16.value) == (9e11, 1e13)
    assert found.pinned.source is Source.ASSUMED


def test_an_unknown_card_is_assumed_flat() -> None:
    found = rates_of(desktop(card("NVIDIA GeForce RTX 9999", 24))).gpus["CUDA0"]
    assert (found.memory.value, found.pinned.value) == (ASSUMED_VRAM_BPS, ASSUMED_PINNED_BPS)
    assert found.f16.value == ASSUMED_VRAM_BPS * FLOPS_PER_BYTE


def test_a_card_runs_at_the_older_of_two_pcie_generations() -> None:
    gpu = card("NVIDIA GeForce RTX 4090", 24)
    new, old = (
        rates_of(desktop(gpu, cpu)).gpus["CUDA0"].pinned.value for cpu in ("Intel Core i9-14900K", "i7-8086K 6c")
    )
    assert new == pytest.approx(2 * old, rel=0.01)


def test_ram_by_the_channels_of_the_processor() -> None:
    found = rates_of(desktop(card("x", 8), "AMD EPYC 7763 64-Core Processor")).ram
    assert found.value == pytest.approx(0.8 * 204.8e9)
    assert found.source is Source.ASSUMED
    assert found.method.startswith("AMD EPYC 7763 64-Core Processor: 8 channels of 3,200 MT/s")
    assert rates_of(desktop(card("x", 8), "an unknown one")).ram.value == ASSUMED_RAM_BPS


def test_shared_memory_is_read_at_its_own_rate_where_that_is_published() -> None:
    strix = card("Radeon 8060S Graphics", 96, unified=True)
    plain = card("AMD Radeon Graphics", 32, unified=True)
    slow = replace(desktop(strix), ram=Ram(128 * GIB, read_bps=measured(120e9)))
    assert rates_of(slow).gpus["CUDA0"].memory.value == 256e9
    assert rates_of(replace(slow, gpus=(plain,))).gpus["CUDA0"].memory.value == 120e9


def test_a_core_without_its_instructions_is_taken_by_its_name() -> None:
    machine = desktop(card("x", 8))
    assert rates_of(machine).core_flops.value == CORE_FLOPS["avx512f"]
    listed = replace(machine, cpu=replace(machine.cpu, isa=("avx2",)))
    assert rates_of(listed).core_flops.value == CORE_FLOPS["avx2"]
