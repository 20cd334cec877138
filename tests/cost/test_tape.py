"""Lifetimes of graph tensors, hand-worked from ``ggml_gallocr_alloc_graph_impl`` (b11434)."""

from __future__ import annotations

from planner.cost.tape import Tape


def peak(tape: Tape) -> int:
    return sum(tape.replay(1).values())


def test_a_tensor_is_freed_after_its_last_reader() -> None:
    tape = Tape()
    a = tape.op("a", 10)
    b = tape.op("b", 10, a)
    tape.op("c", 10, b)
    assert peak(tape) == 20


def test_in_place_takes_over_a_source_of_the_same_shape() -> None:
    tape = Tape()
    a = tape.op("a", 10, key="row")
    tape.op("b", 10, a, key="row", inplace=True)
    assert peak(tape) == 10


def test_in_place_needs_the_same_shape_and_no_other_reader() -> None:
    for key, readers, expected in (("other", 1, 20), ("row", 2, 20)):
        tape = Tape()
        a = tape.op("a", 10, key="row")
        tape.op("b", 10, a, key=key, inplace=True)
        if readers == 2:
            tape.store(a)
        assert peak(tape) == expected


def test_a_view_is_never_taken_over() -> None:
    tape = Tape()
    view = tape.view(tape.op("a", 10), key="row")
    tape.op("b", 10, view, key="row", inplace=True)
    assert peak(tape) == 20


def test_a_view_keeps_its_source_until_it_is_read() -> None:
    tape = Tape()
    a = tape.op("a", 10)
    view = tape.view(a)
    tape.op("b", 5)
    tape.store(view)
    tape.op("c", 10)
    assert peak(tape) == 15  # c takes a's place: the view has been read


def test_a_result_that_nobody_reads_is_never_freed() -> None:
    tape = Tape()
    tape.view(tape.op("lost", 10))
    tape.store(tape.op("a", 10))
    tape.op("b", 10)
    assert peak(tape) == 20


def test_foreign_inputs_come_at_the_start_of_their_split() -> None:
    tape = Tape()
    late = tape.foreign("late", 10)
    a = tape.op("a", 100, tape.foreign("early", 10))
    tape.store(a)
    tape.op("b", 1, late)
    assert peak(tape) == 120  # both inputs, then a
    split = Tape()
    late = split.foreign("late", 10)
    split.store(split.op("a", 100, split.foreign("early", 10)))
    split.split()
    split.op("b", 1, late)
    assert peak(split) == 110


def test_a_staged_weight_lives_for_one_step() -> None:
    tape = Tape()
    for _ in range(3):
        tape.store(tape.op("result", 10, staged=100))
    alive = tape.replay(1)
    assert alive["staged host weights"] == 100
    assert sum(alive.values()) == 110


def test_labels_and_gaps_sum_to_the_peak() -> None:
    tape = Tape()
    a, b = tape.op("a", 10), tape.op("b", 10)
    tape.store(a)
    tape.op("c", 15, b)
    assert tape.replay(1) == {"b": 10, "c": 15, "gaps": 10}
