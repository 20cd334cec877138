"""Layer maps against hand-worked examples of src/llama-model.cpp:1560-1616 (b11434)."""

from __future__ import annotations

import pytest

from planner.cost.layout import Span, active_devices, cuts_tensors, layer_devices, spans, split_shares, used_before
from planner.cost.tape import HOST
from planner.plans.settings import SplitMode
from planner.units import GIB
from tests.builders import make_gpu, make_machine, make_settings

ONE, TWO = ("CUDA0",), ("CUDA0", "CUDA1")


@pytest.mark.parametrize(
    ("n_gpu_layers", "expected"),
    [
        (0, (HOST,) * 5),
        (1, (HOST,) * 4 + ONE),  # the output layer is the first to move
        (3, (HOST,) * 2 + ONE * 3),
        (5, ONE * 5),
        (99, ONE * 5),
    ],
)
def test_layers_count_from_the_end_and_the_output_is_one_of_them(n_gpu_layers: int, expected: tuple[str, ...]) -> None:
    assert layer_devices(4, n_gpu_layers, ONE, (1.0,)) == expected


def test_split_is_by_upper_bound_of_the_cumulative_share() -> None:
    # 4 blocks and the output: positions 0, .2, .4, .6, .8; split points .5 and 1
    assert layer_devices(4, 99, TWO, (1.0, 1.0)) == ("CUDA0", "CUDA0", "CUDA0", "CUDA1", "CUDA1")
    # a position equal to a split point belongs to the next device: 3 blocks, points .5 and 1, positions 0 .25 .5 .75
    assert layer_devices(3, 99, TWO, (2.0, 2.0)) == ("CUDA0", "CUDA0", "CUDA1", "CUDA1")
    assert layer_devices(4, 99, TWO, (3.0, 1.0)).count("CUDA0") == 4


def test_a_share_of_zero_takes_no_layer() -> None:
    assert set(layer_devices(4, 99, TWO, (0.0, 1.0))) == {"CUDA1"}


def test_default_split_is_free_memory() -> None:
    machine = make_machine(make_gpu("CUDA0", free_bytes=12 * GIB), make_gpu("CUDA1", free_bytes=4 * GIB))
    assert split_shares(make_settings(devices=TWO), machine) == (12.0 * GIB, 4.0 * GIB)


def test_a_given_split_is_padded_and_all_zero_means_default() -> None:
    machine = make_machine(make_gpu("CUDA0"), make_gpu("CUDA1"))
    assert split_shares(make_settings(devices=TWO, tensor_split=(3.0,)), machine) == (3.0, 0.0)
    assert split_shares(make_settings(devices=TWO, tensor_split=(0.0, 0.0)), machine) == (15.0 * GIB, 15.0 * GIB)


def test_split_mode_none_uses_the_first_device() -> None:
    assert active_devices(make_settings(devices=TWO, split_mode=SplitMode.NONE)) == ONE


@pytest.mark.parametrize("mode", [SplitMode.ROW, SplitMode.TENSOR])
def test_modes_that_cut_tensors_open_all_devices(mode: SplitMode) -> None:
    assert active_devices(make_settings(devices=TWO, split_mode=mode)) == TWO
    assert cuts_tensors(make_settings(devices=TWO, split_mode=mode))
    assert not cuts_tensors(make_settings(devices=ONE, split_mode=mode))


def test_spans_join_neighbours_and_keep_the_output() -> None:
    assert spans((HOST, HOST, "CUDA0", "CUDA0", "CUDA0")) == (
        Span(HOST, 0, 2, False),
        Span("CUDA0", 2, 4, True),
    )
    assert spans((HOST, HOST, "CUDA0")) == (Span(HOST, 0, 2, False), Span("CUDA0", 2, 2, True))


def test_used_memory_is_measured_or_total_minus_free_or_unknown() -> None:
    assert used_before(make_gpu(used_bytes=2 * GIB, free_bytes=None)) == 2 * GIB
    assert used_before(make_gpu(used_bytes=None, free_bytes=15 * GIB)) == GIB
    assert used_before(make_gpu(used_bytes=None, free_bytes=None)) == 0
