"""Lifetimes of graph tensors, hand-worked from ``ggml_gallocr_alloc_graph_impl`` (b11434)."""

from __future__ import annotations

from typing import Any

from planner.cost.replay import replay
from planner.cost.tape import HOST, Node, Tape


def alive(tape: Tape, device: str = HOST) -> dict[str, int]:
    return replay(tape, dict.fromkeys((HOST, device)), alignment=1)[device]


def peak(tape: Tape, device: str = HOST) -> int:
    return sum(alive(tape, device).values())


def op(tape: Tape, label: str, size: int, *sources: Node, **changes: Any) -> Node:
    """A step on the host unless it says otherwise."""
    return tape.op(label, size, *sources, **({"home": HOST} | changes))


def test_a_tensor_is_freed_after_its_last_reader() -> None:
    tape = Tape()
    a = op(tape, "a", 10)
    b = op(tape, "b", 10, a)
    op(tape, "c", 10, b)
    assert peak(tape) == 20


def test_in_place_takes_over_a_source_of_the_same_shape() -> None:
    tape = Tape()
    a = op(tape, "a", 10, key="row")
    op(tape, "b", 10, a, key="row", inplace=True)
    assert peak(tape) == 10


def test_in_place_needs_the_same_shape_and_no_other_reader() -> None:
    for key, readers, expected in (("other", 1, 20), ("row", 2, 20)):
        tape = Tape()
        a = op(tape, "a", 10, key="row")
        op(tape, "b", 10, a, key=key, inplace=True)
        if readers == 2:
            op(tape, "c", 0, a)
        assert peak(tape) == expected


def test_a_view_keeps_its_source_until_it_is_read() -> None:
    tape = Tape()
    view = tape.view(op(tape, "a", 10))
    op(tape, "b", 5)
    op(tape, "read", 0, view)
    op(tape, "c", 10)
    assert peak(tape) == 15  # c takes a's place: the view has been read


def test_a_result_that_nobody_reads_is_never_freed() -> None:
    tape = Tape()
    op(tape, "lost", 10)
    op(tape, "read", 0, op(tape, "a", 10))
    op(tape, "b", 10)
    assert peak(tape) == 20


def test_labels_and_gaps_sum_to_the_peak() -> None:
    tape = Tape()
    a, b = op(tape, "a", 10), op(tape, "b", 10)
    op(tape, "read", 0, a)
    op(tape, "c", 15, b)
    assert {k: v for k, v in alive(tape).items() if v} == {"b": 10, "c": 15, "gaps": 10}


def test_host_weights_of_large_batches_are_copied_to_the_offload_device() -> None:
    """``GGML_OP_OFFLOAD_MIN_BATCH`` is 32 (ggml/src/ggml-backend.cpp, b11312)."""
    for batch, on_device in ((31, 0), (32, 100)):
        tape = Tape(offload="CUDA0")
        weight = tape.stored("weights", 100, HOST, weight=True)
        tape.op("result", 10, tape.leaf("input", 4), weight=weight, batch=batch)
        assert alive(tape, "CUDA0").get("staged host weights", 0) == on_device


def test_a_step_runs_where_its_weight_is() -> None:
    tape = Tape()
    tape.op("result", 10, tape.leaf("input", 4), weight=tape.stored("weights", 100, "CUDA0", weight=True), batch=1)
    assert alive(tape, "CUDA0")["result"] == 10
