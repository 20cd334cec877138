from __future__ import annotations

import pytest

from planner.facts.observed import CpuTime, Sample
from planner.facts.workload import Goal
from planner.verify.steady import Apart, blocks_apart, doubts, others, spreads


@pytest.mark.parametrize(
    ("before", "during", "apart", "faded", "cause"),
    [
        (0.1, 0.1, (("decode", 1.5),), 1.9, None),
        (None, None, (), None, None),
        (0.82, 0.0, (), None, "the machine was busy"),
        (0.0, 0.5, (), None, "the machine was busy"),
        (0.0, None, (("decode", 1.1), ("prefill", 1.7)), 1.0, "its speed was unsteady"),
        (0.0, 0.0, (), 59.8 / 13.5, "its speed was unsteady"),
        (0.0, 0.0, (), 0.2, None),  # a cold start, warm later
    ],
)
def test_a_busy_or_unsteady_machine(
    before: float | None, during: float | None, apart: Apart, faded: float | None, cause: str | None
) -> None:
    found = doubts(before, during, apart, faded)
    assert (found.cause if found else None) == cause


def test_reasons_have_their_numbers() -> None:
    found = doubts(0.82, 0.4, (("decode", 4.4),), 4.0)
    assert found is not None and found.reasons == (
        "82% of the CPUs were busy before",
        "others took 40% of the CPUs meanwhile",
        "decode of the same settings varied by a factor of 4.4",
        "decode fell to 25% of the first answer's, more than depth explains",
    )


@pytest.mark.parametrize(
    ("cpu", "seconds", "share"),
    [
        ((CpuTime(0.0, 0.0, 0.0), CpuTime(20.0, 20.0, 10.0)), 10.0, 0.5),
        ((CpuTime(0.0, 0.0, 0.0), CpuTime(20.0, 9.9, 10.0)), 10.0, 0.0),
        ((CpuTime(0.0, 0.0, 0.0), CpuTime(1.0, 1.0, 0.0)), 0.5, None),
        ((CpuTime(5.0, 0.0, 0.0), CpuTime(5.0, 0.0, 0.0)), 10.0, None),
        ((None, CpuTime(5.0, 0.0, 0.0)), 10.0, None),
    ],
)
def test_what_others_took(cpu: tuple[CpuTime | None, ...], seconds: float, share: float | None) -> None:
    assert others(tuple(Sample(seconds * n, cpu=found) for n, found in enumerate(cpu))) == share
    assert others(()) is None


def test_blocks_of_the_same_settings() -> None:
    assert dict(blocks_apart((10.0, 12.0), (100.0, 300.0), Goal.TURN)) == {"decode": 1.2, "prefill": 3.0}
    assert dict(blocks_apart((10.0, 12.0), (100.0, 300.0), Goal.DECODE)) == {"decode": 1.2}
    assert blocks_apart((10.0,), (), Goal.TURN) == ()


def test_a_run_justifies_what_it_saw_twice() -> None:
    assert dict(spreads((("prefill", 1.1),), None)) == {"prefill": 1.25}
    assert dict(spreads((("decode", 1.3),), 0.6)) == {"decode": pytest.approx(1 / 0.6)}
    assert spreads((), None) == ()
