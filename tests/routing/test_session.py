"""What is announced is what is done, and what is left follows from what was."""

from __future__ import annotations

import pytest

from planner.plans.speed import Band, Resource, Speed
from planner.routing.session import Course


def band(mid: float) -> Band:
    return Band(mid / 2, mid, mid * 2)


class Told:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.whole: list[tuple[int, int, float]] = []
        self.steps: list[tuple[int, int, float]] = []

    def begin(self, capture: object) -> None:
        raise AssertionError("not by the course")

    def counted(self, text: int, answer: int, least_s: float) -> None:
        self.whole.append((text, answer, least_s))

    def step(self, done: int, of: int, left_s: float) -> None:
        self.steps.append((done, of, left_s))

    def end(self) -> None:
        raise AssertionError("not by the course")


@pytest.mark.parametrize("loads_s", [0.0, 100.0])
def test_what_is_left_follows_from_what_was_done(loads_s: float) -> None:
    """Ten tokens of text a second, and of an answer one: predicted are 100 and 50. Loading is no part of it."""
    told, now = Told(), 0.0
    course = Course(told, 20, Speed(band(50.0), band(100.0), band(1.0), Resource.RAM), lambda: now)
    now = loads_s
    for seconds, done in ((0.0, 0), (10.0, 100), (20.0, 200), (25.0, 205), (40.0, 220)):
        now = loads_s + seconds
        course.step(done, 220)
    assert told.whole == [(200, 20, pytest.approx(200 / 200 + 20 / 100))]
    assert told.steps == [
        (100, 220, pytest.approx(10 + 20 * 0.2)),
        (200, 220, pytest.approx(20 * 0.2)),
        (205, 220, pytest.approx(15.0)),
        (220, 220, 0.0),
    ]
