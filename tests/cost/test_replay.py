"""Lifetimes of graph tensors, hand-worked from ``ggml_gallocr_alloc_graph_impl`` (b11434)."""

from __future__ import annotations

from planner.cost.replay import replay
from planner.cost.tape import HOST, Tape

GPU = "CUDA0"


def on_host() -> Tape:
    """A tape whose steps all run on the host."""
    tape = Tape()
    tape.op("start", 0, home=HOST)
    return tape


def alive(tape: Tape, *, cuda: tuple[str, ...] = (), copies: int = 1, device: str = HOST) -> dict[str, int]:
    return replay(tape, (GPU, HOST), cuda=cuda, alignment=1, copies=copies)[device]


def peak(tape: Tape, **changes: object) -> int:
    return sum(alive(tape, **changes).values())  # type: ignore[arg-type]


def test_a_tensor_is_freed_after_its_last_reader() -> None:
    tape = on_host()
    a = tape.op("a", 10)
    b = tape.op("b", 10, a)
    tape.op("c", 10, b)
    assert peak(tape) == 20


def test_in_place_takes_over_a_source_of_the_same_shape() -> None:
    tape = on_host()
    a = tape.op("a", 10, key="row")
    tape.op("b", 10, a, key="row", inplace=True)
    assert peak(tape) == 10


def test_in_place_needs_the_same_shape_and_no_other_reader() -> None:
    for key, readers, expected in (("other", 1, 20), ("row", 2, 21)):
        tape = on_host()
        a = tape.op("a", 10, key="row")
        tape.op("b", 10, a, key=key, inplace=True)
        if readers == 2:
            tape.op("c", 1, a)
        assert peak(tape) == expected


def test_a_view_is_never_taken_over() -> None:
    tape = on_host()
    view = tape.view(tape.op("a", 10, key="row"))
    tape.op("b", 10, view, key=view.key, inplace=True)
    assert peak(tape) == 20


def test_a_view_keeps_its_source_until_it_is_read() -> None:
    tape = on_host()
    view = tape.view(tape.op("a", 10))
    b = tape.op("b", 5)
    tape.op("d", 0, view, b)
    tape.op("c", 10)
    assert peak(tape) == 15  # c takes a's place: the view has been read


def test_a_result_that_nobody_reads_is_never_freed() -> None:
    tape = on_host()
    tape.view(tape.op("lost", 10))
    tape.op("b", 10, tape.op("a", 10))
    assert peak(tape) == 30


def test_a_source_is_kept_until_its_copy_is_made() -> None:
    tape = Tape()
    made = tape.op("made", 10, home=HOST)
    tape.op("read", 1, made, home=GPU)
    assert alive(tape) == {"made": 10, "gaps": 0}


def test_a_staged_weight_lives_for_one_step() -> None:
    tape = Tape(GPU)
    x = tape.op("result", 10, home=GPU)
    for _ in range(3):
        x = tape.op("result", 10, x, weight=tape.stored("w", 100, HOST, weight=True), batch=32)
    found = alive(tape, device=GPU)
    assert found["staged host weights"] == 100
    assert sum(found.values()) == 120


def test_only_cuda_asks_for_more_behind_a_result() -> None:
    for cuda, expected in (((GPU,), 15), ((), 10)):
        tape = Tape()
        tape.op("attention", 10, home=GPU, extra=5)
        assert peak(tape, cuda=cuda, device=GPU) == expected


def test_a_fused_step_keeps_its_sources() -> None:
    for cuda, expected in (((GPU,), 30), ((), 20)):
        tape = Tape()
        a = tape.op("a", 10, home=GPU)
        b = tape.op("b", 10, a, home=GPU)
        tape.op("c", 10, b, home=GPU)
        tape.keep(a)
        assert peak(tape, cuda=cuda, device=GPU) == expected


def test_pipelines_keep_every_copy_of_an_input() -> None:
    tape = Tape()
    x = tape.op("x", 1, tape.leaf("mask", 10), home=GPU)
    tape.op("y", 1, x, home=GPU)
    assert alive(tape, copies=4, device=GPU)["mask"] == 40


def test_labels_and_gaps_sum_to_the_peak() -> None:
    tape = on_host()
    a, b = tape.op("a", 10), tape.op("b", 10)
    tape.op("d", 0, a)
    tape.op("c", 15, b)
    assert alive(tape) == {"start": 0, "b": 10, "d": 0, "c": 15, "gaps": 10}
