"""Where a step is told to run, hand-worked from ``ggml_backend_sched_backend_id_from_cur`` (b11434)."""

from __future__ import annotations

import pytest

from planner.cost.tape import HOST, Kind, Tape

GPU = "CUDA0"


@pytest.mark.parametrize(
    ("where", "batch", "offload", "expected"),
    [
        (HOST, 32, GPU, GPU), (HOST, 31, GPU, HOST), (HOST, 32, None, HOST), ("CUDA1", 32, GPU, "CUDA1"),
        ("CUDA1", 1, None, "CUDA1"),
    ],
)  # fmt: skip
def test_a_step_runs_where_its_weight_is_unless_the_batch_is_large(
    where: str, batch: int, offload: str | None, expected: str
) -> None:
    tape = Tape(offload)
    weight = tape.stored("weights", 10, where, weight=True)
    assert tape.op("product", 1, weight=weight, batch=batch).home == expected


def test_a_forced_device_wins_over_the_weight() -> None:
    tape = Tape(GPU)
    weight = tape.stored("weights", 10, HOST, weight=True)
    assert tape.op("norm", 1, weight=weight, batch=512, home="CUDA1").home == "CUDA1"


def test_a_step_without_a_weight_is_left_to_the_scheduler() -> None:
    tape = Tape(GPU)
    cache = tape.stored("cache", 10, HOST)
    assert tape.op("attention", 1, cache).home is None


def test_a_write_is_where_its_cache_is() -> None:
    tape = Tape()
    cache = tape.stored("cache", 10, GPU)
    assert tape.write(tape.view(cache), tape.op("k", 1)).home == GPU
    assert tape.write(tape.op("made", 1), tape.op("k", 1)).home is None


def test_a_view_knows_the_tensor_behind_all_views() -> None:
    tape = Tape()
    made = tape.op("made", 10)
    view = tape.view(tape.view(made), size=4)
    assert (view.root, view.size, view.span, view.kind) == (made, 4, 10, Kind.VIEW)


def test_what_is_expanded_early_goes_before_what_waits() -> None:
    tape = Tape()
    first = tape.op("first", 1)
    tape.expand()
    waiting = tape.op("waiting", 1)
    start = len(tape.steps)
    early = tape.op("early", 1)
    tape.advance(start)
    assert tape.steps == [first, early, waiting]
