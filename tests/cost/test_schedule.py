"""Devices of steps and copies between them, hand-worked from ``ggml_backend_sched_split_graph`` (b11434)."""

from __future__ import annotations

from planner.cost.schedule import assign, splits
from planner.cost.tape import HOST, Kind, Node, Tape

GPU = "CUDA0"


def homes(tape: Tape) -> list[str | None]:
    assign(tape.steps)
    return [step.home for step in tape.steps]


def drawn(tape: Tape, *cuda: str) -> list[str]:
    """Labels in the order of allocation, copies with a ``>``."""
    assign(tape.steps)
    order, _ = splits(tape.steps, cuda)
    marks = {Kind.COPY: ">", Kind.KEEP: "|"}
    return [f"{marks.get(node.kind, '')}{node.label}@{node.home}" for node in order if node.label]


def on(tape: Tape, device: str, *sources: Node, size: int = 1, weight: int = 0) -> Node:
    """A step with a weight on a device."""
    stored = tape.stored("weight", weight or 1, device, weight=True)
    return tape.op(f"with weight on {device}", size, *sources, weight=stored)


def test_a_gpu_spreads_down_and_up_over_steps_without_a_device() -> None:
    tape = Tape()
    before = tape.op("before", 1)
    after = tape.op("after", 1, on(tape, GPU, before))
    tape.op("more", 1, after)
    assert homes(tape) == [GPU] * 4


def test_the_host_spreads_only_over_what_no_gpu_reaches() -> None:
    tape = Tape()
    x = tape.op("between", 1, on(tape, HOST))
    x = on(tape, GPU, x)
    x = tape.op("after the gpu", 1, x)
    tape.op("after the host", 1, on(tape, HOST, x))
    # up: the GPU takes what is before it up to the host's step; down: what is behind it; the host only the end
    assert homes(tape) == [HOST, GPU, GPU, GPU, HOST, HOST]


def test_a_graph_without_any_gpu_runs_on_the_host() -> None:
    tape = Tape()
    tape.op("b", 1, on(tape, HOST, tape.op("a", 1)))
    assert homes(tape) == [HOST] * 3


def test_views_follow_their_source_and_leaves_their_first_reader() -> None:
    tape = Tape()
    leaf = tape.leaf("zeros", 1, given=False)
    view = tape.view(on(tape, GPU, leaf))
    on(tape, HOST, view)
    assign(tape.steps)
    assert (leaf.home, view.home) == (GPU, GPU)


def test_copies_come_at_the_start_of_their_split_and_once_per_device() -> None:
    tape = Tape()
    mask, late = tape.leaf("mask", 4), tape.leaf("late", 4)
    x = on(tape, GPU, mask)
    x = on(tape, GPU, x, late, mask)
    x = on(tape, HOST, x)
    on(tape, GPU, x, mask)
    gpu, host = f"with weight on {GPU}@{GPU}", f"with weight on {HOST}@{HOST}"
    assert drawn(tape) == [
        f">mask@{GPU}", f">late@{GPU}", gpu, gpu, f">with weight on {GPU}@{HOST}", host,
        f">with weight on {HOST}@{GPU}", gpu,
    ]  # fmt: skip


def test_a_second_weight_from_the_host_opens_a_new_split() -> None:
    tape = Tape(GPU)
    first, second = (tape.stored(name, 9, HOST, weight=True) for name in "ab")
    x = tape.op("x", 1, weight=first, batch=32)
    tape.op("y", 1, x, tape.leaf("late", 1), weight=second, batch=32)
    staged = f">staged host weights@{GPU}"
    assert drawn(tape) == [staged, f"x@{GPU}", staged, f">late@{GPU}", f"y@{GPU}"]


def test_an_input_read_first_does_not_open_a_split() -> None:
    tape = Tape(GPU)
    x = tape.op("x", 1, weight=tape.stored("a", 9, HOST, weight=True), batch=32)
    tape.op("y", 1, x, tape.leaf("late", 1), home=GPU)
    assert drawn(tape) == [f">staged host weights@{GPU}", f">late@{GPU}", f"x@{GPU}", f"y@{GPU}"]


def test_only_cuda_keeps_sources_of_fused_steps() -> None:
    for cuda, expected in (((GPU,), 1), ((), 0)):
        tape = Tape()
        x = on(tape, GPU)
        on(tape, GPU, x)
        tape.keep(x)
        assign(tape.steps)
        order, _ = splits(tape.steps, cuda)
        assert sum(node.kind is Kind.KEEP for node in order) == expected
