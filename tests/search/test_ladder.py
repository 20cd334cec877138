"""The ladder's search: the first index that holds, wherever it begins to look."""

from __future__ import annotations

from planner.search.ladder import first_true


def test_the_first_is_found_from_everywhere() -> None:
    for n in range(20):
        for first in range(n + 1):
            for near in range(n + 2):
                assert first_true(n, lambda i, first=first: i >= first, near) == first  # type: ignore[misc]


def test_a_good_start_asks_less() -> None:
    asked: list[int] = []

    def holds(i: int) -> bool:
        asked.append(i)
        return i >= 57

    assert first_true(100, holds, 57) == 57
    near = len(asked)
    assert first_true(100, holds) == 57
    assert near <= 3 < len(asked) - near
