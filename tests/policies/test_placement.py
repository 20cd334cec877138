"""Dense part and experts: one ladder, two rules."""

from dataclasses import replace
from typing import Any

import pytest

from planner.facts.machine import Gpu
from planner.plans.decision import Fate
from planner.units import GIB
from policies import dense_part, experts
from tests.policies.problems import card, decision, dense_model, explained, machine, problem, solved


@pytest.mark.parametrize(
    ("cards", "limits", "says"),
    [((), {}, "no GPU was found"), ((card(15),), {"vram_bytes": (("", GIB),)}, "no GPU takes part")],
)
def test_without_a_gpu_it_says_so(cards: tuple[Gpu, ...], limits: dict[str, Any], says: str) -> None:
    said = decision(solved(machine(*cards), **limits), "n_gpu_layers")
    assert said.value == 0 and said.headline.startswith(says)
    assert said.because[0].value == len(cards)


def test_everything_on_a_large_card() -> None:
    plan = solved(machine(card(20)))
    assert (plan.chosen.settings.n_gpu_layers, plan.chosen.settings.n_cpu_moe) == (25, 0)
    assert decision(plan, "n_cpu_moe").headline == "every expert is on the GPU"


def test_experts_leave_before_layers() -> None:
    plan = solved(machine(card(6)))
    assert plan.chosen.settings.n_gpu_layers == 25
    assert 0 < plan.chosen.settings.n_cpu_moe < 24


def test_the_smallest_count_that_fits_is_taken() -> None:
    said = decision(solved(machine(card(6)), pins=(("n_ubatch", "512"),)), "n_cpu_moe")
    fewer = next(a for a in said.alternatives if a.value == said.value - 1)
    assert fewer.outcome is Fate.DOES_NOT_FIT
    more = next(a for a in said.alternatives if a.value == said.value + 1)
    assert more.outcome is Fate.SLOWER


def test_whole_layers_leave_only_when_all_experts_are_out() -> None:
    plan = solved(machine(card(2.2)), n_ctx=131072)
    assert plan.chosen.settings.n_gpu_layers < 25
    assert plan.chosen.settings.n_cpu_moe in (0, 24)


def test_part_of_a_block_comes_back_when_it_fits_and_pays() -> None:
    sizes = [n / 8 for n in range(40, 50)]
    plans = [solved(machine(card(free))) for free in sizes]
    partial = [p for p in plans if p.chosen.settings.override_tensor]
    assert partial, "no size in the range left room for part of a block"
    for plan in partial:
        ((pattern, target),) = plan.chosen.settings.override_tensor
        assert target == "CPU"
        assert f"blk\\.{plan.chosen.settings.n_cpu_moe}\\." in pattern
        assert plan.chosen.memory.devices[0].headroom_bytes >= GIB
        assert decision(plan, "override_tensor").alternatives[0].outcome is Fate.SLOWER


def test_more_room_never_means_fewer_experts_on_the_gpu() -> None:
    counts = [
        solved(machine(card(n)), n_ctx=16384, pins=(("n_ubatch", "512"),)).chosen.settings.n_cpu_moe
        for n in range(3, 14)
    ]
    assert counts == sorted(counts, reverse=True)


def test_two_cards_split_by_bytes_after_the_experts_moved() -> None:
    plan = solved(machine(card(5), card(5, id="CUDA1")))
    first, last = plan.chosen.memory.devices
    assert first.headroom_bytes >= GIB
    assert last.headroom_bytes >= GIB
    one_block = 3 * 128 * 2**20
    assert abs(first.predicted_bytes - last.predicted_bytes) < 2 * one_block
    assert sum(plan.chosen.settings.tensor_split) == plan.chosen.settings.n_gpu_layers


def test_a_dense_model_gives_up_layers_and_is_told_so() -> None:
    plan = solved(machine(card(6)), dense_model())
    assert plan.chosen.settings.n_cpu_moe == 0
    assert 0 < plan.chosen.settings.n_gpu_layers < 25
    assert "dense-model" in [c.code for c in plan.cautions]
    assert not [d for d in plan.decisions if d.rule == "experts"]


def test_without_a_gpu_nothing_is_placed() -> None:
    given = problem(machine())
    for rule in (dense_part.RULE, experts.RULE):
        (said,) = explained(rule, given)
        assert said.value == 0
    assert explained(experts.RULE, replace(given, model=dense_model())) == ()
