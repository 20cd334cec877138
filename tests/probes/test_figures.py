from __future__ import annotations

from typing import Any

import pytest

from planner.facts.reading import Reading, Source
from probes import figures


def test_median_and_half_the_range() -> None:
    reading = figures.measured([3e9, 1e9, 2e9], "copies", 0.5)
    assert reading == Reading(2e9, Source.MEASURED, "copies, median of 3", 1e9, 0.5)
    assert figures.measured([1.0, 2.0], "x", 0).value == 1.5
    assert figures.from_json(figures.to_json(reading)) == reading


@pytest.mark.parametrize("samples", [[], [0.0], [1.0, float("nan")], [float("inf")], [-1.0]])
def test_what_is_no_rate(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="positive samples"):
        figures.measured(samples, "x", 1.0)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"value": 0, "method": ""},
        {"value": "5", "method": ""},
        {"value": True, "method": ""},
        {"value": float("nan"), "method": ""},
        {"value": 1.0, "method": 5},
        {"value": 1.0, "method": "", "spread": -1},
    ],
)
def test_a_damaged_reading(data: Any) -> None:
    with pytest.raises(ValueError):
        figures.from_json(data)
