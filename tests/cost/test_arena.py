"""The allocator's habits, hand-worked from ggml/src/ggml-alloc.c (b11434)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from planner.cost.arena import Arena


def test_sizes_are_aligned() -> None:
    arena = Arena(128)
    assert (arena.take(1), arena.take(129), arena.peak) == (0, 128, 384)


def test_the_tightest_hole_is_reused_first() -> None:
    arena = Arena(1)
    blocks = [arena.take(size) for size in (100, 1, 40, 1)]
    arena.give(blocks[0], 100)
    arena.give(blocks[2], 40)
    assert arena.take(30) == 101  # the hole of 40, not the one of 100
    assert arena.take(90) == 0


def test_the_tail_is_used_only_when_no_hole_fits() -> None:
    arena = Arena(1)
    first, _ = arena.take(10), arena.take(10)
    arena.give(first, 10)
    assert arena.take(11) == 20
    assert arena.peak == 31


def test_freed_neighbours_merge() -> None:
    arena = Arena(1)
    a, b, c, _ = (arena.take(10) for _ in range(4))
    for block in (a, c, b):
        arena.give(block, 10)
    assert arena.take(30) == 0


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_live_blocks_never_overlap(sizes: list[int], random: object) -> None:
    arena, live = Arena(8), []
    for size in sizes:
        if live and random.random() < 0.4:  # type: ignore[attr-defined]
            arena.give(*live.pop(random.randrange(len(live))))  # type: ignore[attr-defined]
        live.append((arena.take(size), size))
        ends = sorted((offset, offset + n) for offset, n in live)
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))
        assert arena.peak >= ends[-1][1]


def test_an_empty_block_inside_a_live_one_keeps_neighbours_apart() -> None:
    arena = Arena(1)
    a, b, c = arena.take(10), arena.take(10), arena.take(10)
    arena.give(b + 5, 0)  # a tensor of no size whose address is inside b
    for block in (a, c, b):
        arena.give(block, 10)
    assert arena.take(30) != 0  # the holes of b and of its neighbours have not become one
