from __future__ import annotations

import random
from itertools import pairwise
from math import exp
from typing import Any

import pytest

from planner.verify.blocks import FEWEST, LOOKS, MOST, Arm, Judged, Ruling, judged, order


def test_loads_serve_two_blocks_and_both_orders_come_up() -> None:
    blocks = [arm for pair in order(4) for arm in pair]
    assert "".join(blocks) == "abbaabba"
    assert sum(a is not b for a, b in pairwise(blocks)) == 4


def decided(run: Any) -> Judged:
    costs: list[tuple[float, float]] = []
    for pair in order(MOST):
        cost = {arm: run(arm, len(costs), at) for at, arm in enumerate(pair)}
        costs.append((cost[Arm.A], cost[Arm.B]))
        found = judged(tuple(costs))
        if found.ruling is not Ruling.MORE:
            return found
    raise AssertionError("undecided")


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize(("share", "ruling"), [(0.85, Ruling.KEEP), (1.15, Ruling.REJECT)])
def test_a_planted_setting_is_recognised_in_noise(seed: int, share: float, ruling: Ruling) -> None:
    """4 % of noise on every block, and now and then one that a neighbour holds up."""
    chance = random.Random(seed)

    def run(arm: Arm, number: int, at: int) -> float:
        noise = exp(chance.gauss(0, 0.04)) * (1.08 if chance.random() < 0.1 else 1.0)
        return 10.0 * noise * (share if arm is Arm.B else 1.0)

    assert decided(run).ruling is ruling


def test_what_changes_nothing_is_seldom_kept() -> None:
    kept = 0
    for seed in range(300):
        chance = random.Random(seed)
        kept += decided(lambda arm, n, at, c=chance: exp(c.gauss(0, 0.04))).ruling is Ruling.KEEP
    assert kept <= 300 * 0.06


@pytest.mark.parametrize("drift", [0.97, 1.03])
def test_a_machine_that_warms_up_credits_neither_arm(drift: float) -> None:
    """Every block is 3 % faster (or slower) than the one before it: in the order A B that alone would decide."""
    clock = iter(range(1000))
    found = decided(lambda arm, number, at: drift ** next(clock))
    assert found.ruling is Ruling.REJECT and abs(found.gain) < 0.01


def test_less_than_three_percent_is_not_worth_a_setting() -> None:
    found = decided(lambda arm, number, at: 0.98 if arm is Arm.B else 1.0)
    assert (found.ruling, found.pairs) == (Ruling.REJECT, LOOKS[0])


def test_what_clearly_costs_is_out_after_two_pairs_but_nothing_is_kept_then() -> None:
    assert judged(((1.0, 1.30), (1.0, 1.31))).ruling is Ruling.REJECT
    assert judged(((1.0, 1.0), (1.0, 1.6))).ruling is Ruling.MORE
    assert judged(((1.0, 0.70), (1.0, 0.71))).ruling is Ruling.MORE


def test_nothing_is_decided_early() -> None:
    assert judged(((1.0, 0.5),)).ruling is Ruling.MORE
    assert judged(((1.0, 0.5),) * (FEWEST - 1)).ruling is Ruling.MORE
    assert judged(((1.0, 0.5),) * FEWEST).ruling is Ruling.KEEP
