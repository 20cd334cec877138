"""Which measured figure a rate is taken from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.cost.rates import ASSUMED_DISK_BPS, rates_of
from planner.facts.machine import Disk, ReadPoint
from planner.facts.reading import Reading, Source
from tests.builders import make_machine, make_model

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
def test_paging_is_read_at_the_expert_slice_and_the_deepest_queue(slice_kib: int | None, rate: float) -> None:
    machine = replace(make_machine(), disk=Disk("/m", read_curve=CURVE))
    assert rates_of(machine, slice_kib and slice_kib * KIB).disk.value == rate


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
