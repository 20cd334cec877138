"""No alternative that a plan tells of is faster than the plan; a shorter context alone may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.facts.machine import Backend, Gpu, Machine, Overflow, Ram
from planner.facts.reading import Reading, Source
from planner.facts.workload import Goal
from planner.plans.compare import cost
from planner.plans.decision import Fate
from planner.plans.plan import Plan, Verdict
from planner.units import GIB
from tests.policies.problems import card, machine, solved, windows

FREE = ("n_ctx",)
"""Longer contexts may cost 5 % of a turn: a shorter one is then faster."""
FASTER = 0.99


def shared(ram: float, free: float, limit: float = 0.75) -> Machine:
    """A computer whose GPU has no memory of its own."""
    gpu = replace(
        card(1), id="MTL0", unified=True, backend=Backend.METAL, total_bytes=int(ram * limit * GIB), used_bytes=0,
        free_bytes=None, memory_bps=Reading(400e9, Source.MEASURED), f16_flops=Reading(14e12, Source.MEASURED),
    )  # fmt: skip
    return machine(gpu, ram=Ram(int(ram * GIB), int(free * GIB), overflow=Overflow.COMPRESS))


def slow(gpu: Gpu) -> Gpu:
    """Behind four lanes."""
    return replace(gpu, h2d_pinned_bps=Reading(3e9, Source.MEASURED), h2d_pageable_bps=Reading(2e9, Source.MEASURED))


MACHINES = {
    **{f"linux {free}": machine(card(free)) for free in (4, 6, 8, 12)},
    **{f"windows {free}": windows(card(free)) for free in (6, 9)},
    **{f"slow link {free}": machine(slow(card(free))) for free in (3, 6)},
    **{f"shared {ram}": shared(ram, ram - 3) for ram in (10, 13, 14, 16, 24)},
    "little ram": machine(card(6), ram=Ram(8 * GIB, 7 * GIB, overflow=Overflow.SWAP)),
    "two": machine(card(5), card(3, id="CUDA1")),
}


def faster(plan: Plan) -> list[str]:
    """What the plan says of values that would be faster than its own."""
    return [
        f"{decision.setting} {other.value}: {other.by}"
        for decision in plan.decisions
        for other in decision.alternatives
        if decision.setting not in FREE and other.outcome is Fate.SLOWER and other.by is not None and other.by < FASTER
    ]


@pytest.mark.parametrize("ram", [10, 13, 24])
def test_a_gpu_that_shares_ram_goes_down_the_ladder_for_ram(ram: float) -> None:
    """What leaves it is part of the mapped file, which can be evicted: no rung below is faster, none fits above."""
    plan = solved(shared(ram, ram - 3), n_ctx=8192)
    chosen = plan.chosen.settings
    assert chosen.devices == ("MTL0",) and plan.chosen.verdict is (Verdict.PAGES if ram == 10 else Verdict.FITS)
    for n in (chosen.n_cpu_moe - 1, chosen.n_cpu_moe + 1):
        if n >= 0:
            other = solved(shared(ram, ram - 3), n_ctx=8192, pins=(("n_cpu_moe", str(n)),))
            assert other.refusal or cost(other.chosen, Goal.TURN) >= FASTER * cost(plan.chosen, Goal.TURN)


@pytest.mark.parametrize("prompt", [60, 300, 1000, 4096, 5000])
@pytest.mark.parametrize("name", MACHINES)
def test_nothing_that_was_not_chosen_is_faster(name: str, prompt: int) -> None:
    plan = solved(MACHINES[name], prompt_tokens=prompt, n_ctx=8192)
    assert plan.refusal is None and not faster(plan)
