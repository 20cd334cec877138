"""The arithmetic of differences, on made-up times."""

from __future__ import annotations

import pytest

from probes.layer_fit import Difference, Line, crossing, difference, line


@pytest.mark.parametrize(
    ("shallow", "deep", "n", "expected"),
    [
        ([(3.0,)], [(11.0,)], 4, Difference(2.0, None)),
        ([(3.0, 9.0)], [(20.0, 11.0)], 4, Difference(2.0, None)),  # the fastest repeat counts
        ([(3.0,), (6.0,)], [(11.0,), (14.0,)], 4, Difference(2.0, 0.0)),  # a slower second half falls out
        ([(3.0,), (3.0,), (3.0,)], [(7.0,), (8.0,), (30.0,)], 1, Difference(5.0, 11.5)),
        ([(3.0,)], [(3.0,)], 4, None),
        ([(3.0,)], [(2.0,)], 4, None),
        ([(3.0,), (3.0,)], [(3.1,), (9.0,)], 1, Difference(3.05, 2.95)),
        ([(3.0,), (3.0,)], [(1.0,), (6.0,)], 1, None),  # drowns: the pairs do not agree on a sign
        ([], [], 4, None),
        ([()], [(1.0,)], 4, None),
        ([(3.0,), (5.0,)], [(11.0,)], 4, Difference(2.0, None)),  # a last run without its partner
    ],
)
def test_difference(
    shallow: list[tuple[float, ...]], deep: list[tuple[float, ...]], n: int, expected: Difference | None
) -> None:
    found = difference(shallow, deep, n)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found.value == pytest.approx(expected.value)
        assert found.spread == (None if expected.spread is None else pytest.approx(expected.spread))


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ({64: 1.64, 256: 3.56, 512: 6.12}, Line(1.0, 0.01)),
        ({64: 0.64, 512: 5.12}, Line(0.0, 0.01)),
        ({64: 2.0, 512: 2.0}, Line(2.0, 0.0)),
        ({64: 3.0, 512: 2.0}, Line(30 / 13, 0.0)),  # a falling line is none: the weighted mean
        ({64: 1.0}, None),
        ({}, None),
    ],
)
def test_line(points: dict[int, float], expected: Line | None) -> None:
    found = line(points)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found.fixed_s, found.per_token_s) == pytest.approx((expected.fixed_s, expected.per_token_s), abs=1e-9)


def test_a_line_never_starts_below_zero() -> None:
    found = line({64: 0.5, 256: 3.0, 512: 7.0})
    assert found is not None
    assert found.fixed_s == 0.0
    assert found.at(512) == pytest.approx(512 * found.per_token_s)
    assert 0.5 / 64 < found.per_token_s < 7.0 / 512


@pytest.mark.parametrize(
    ("mixed", "device", "host", "share", "expected"),
    [(10.0, 2.0, 10.0, 0.5, 4.0), (6.0, 2.0, 10.0, 0.5, None), (5.9, 2.0, 10.0, 0.5, None), (3.0, 2.0, 10.0, 0.0, 1.0)],
)
def test_crossing(mixed: float, device: float, host: float, share: float, expected: float | None) -> None:
    assert crossing(mixed, device, host, share) == (None if expected is None else pytest.approx(expected))
