"""A choice is never beaten by the same question with the next ubatch pinned."""

from __future__ import annotations

from itertools import product

import pytest

from planner.plans.compare import cost
from planner.plans.plan import Verdict
from planner.search.candidates import TIE
from tests.policies.problems import card, machine, solved, windows

MACHINES = {f"{name} {gib}": make(card(gib)) for (name, make), gib in product(
    (("linux", machine), ("windows", windows)), (6, 7.3, 8.3, 8.7, 10.5)
)}  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_no_pinned_neighbour_is_faster(name: str) -> None:
    plan = solved(MACHINES[name], n_ctx=8192)
    goal, now = plan.workload.goal, plan.chosen.settings.n_ubatch
    for n_ubatch in (now * 2, now // 2):
        pinned = solved(MACHINES[name], n_ctx=8192, pins=(("n_ubatch", str(n_ubatch)),))
        if pinned.refusal is None and pinned.chosen.verdict is plan.chosen.verdict:
            assert cost(pinned.chosen, goal) >= cost(plan.chosen, goal) * (1.0 - TIE)
        assert plan.chosen.verdict is Verdict.FITS or pinned.chosen.verdict is not Verdict.FITS


def test_a_ubatch_step_keeps_the_context() -> None:
    """What it buys is told of the same context, beside whatever else changes."""
    plan = solved(machine(card(6)))
    steps = {step.change: step.effect for step in plan.exchange}
    assert any(change.startswith("n_ubatch") for change in steps)
    assert not any(effect.startswith("n_ubatch") for change, effect in steps.items() if change.startswith("n_ubatch"))


def test_a_pinned_ubatch_has_no_neighbours() -> None:
    plan = solved(machine(card(6)), pins=(("n_ubatch", "512"),))
    assert plan.chosen.settings.n_ubatch == 512
    assert not any(step.change.startswith("n_ubatch") for step in plan.exchange)
