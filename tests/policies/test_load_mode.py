from dataclasses import replace

import pytest

from planner.cost.host import margin_bytes
from planner.facts.machine import Overflow, Ram
from planner.plans.decision import Fate
from planner.plans.settings import LoadMode
from planner.units import GIB, MIB
from tests.policies.problems import big_model, card, decision, machine, solved


def test_pinned_when_ram_holds_it() -> None:
    plan = solved(machine(card(4)))
    assert plan.chosen.settings.load_mode is LoadMode.NONE
    assert plan.chosen.memory.host.pinned_bytes > 0


def test_mapped_when_ram_does_not_and_the_price_is_said() -> None:
    tight = machine(card(4), ram=Ram(10 * GIB, 8 * GIB, overflow=Overflow.KILL))
    plan = solved(tight)
    assert plan.chosen.settings.load_mode is LoadMode.MMAP
    assert decision(plan, "load_mode").alternatives[0].outcome is Fate.DOES_NOT_FIT


def test_a_mapping_that_leaves_little_ram_says_what_is_at_risk() -> None:
    """The weights are mapped and fit, with less than the margin of 20 % left."""
    plan = solved(machine(ram=Ram(12 * GIB, 11 * GIB, overflow=Overflow.KILL)), n_ctx=1024)
    host = plan.chosen.memory.host
    assert host.headroom_bytes is not None
    roomy = solved(machine())
    tight = 0 <= host.headroom_bytes < margin_bytes(11 * GIB, Overflow.KILL)
    assert ("read from the disk again" in decision(plan, "load_mode").headline) is tight is True
    assert "read from the disk again" not in decision(roomy, "load_mode").headline


def test_mapped_when_nothing_stays_in_ram() -> None:
    assert solved(machine(card(20))).chosen.settings.load_mode is LoadMode.MMAP


def test_abstains_to_the_mapped_file_without_a_gpu() -> None:
    plan = solved(machine())
    assert plan.chosen.settings.load_mode is LoadMode.MMAP
    assert decision(plan, "load_mode").alternatives == ()


@pytest.mark.parametrize(
    ("overflow", "share"),
    [(Overflow.SWAP, 0.04), (Overflow.COMPRESS, 0.10), (Overflow.KILL, 0.20), (Overflow.NONE, 0.20), (None, 0.15)],
)
def test_margin_by_what_happens_when_ram_runs_out(overflow: Overflow | None, share: float) -> None:
    assert margin_bytes(100 * GIB, overflow) == int(100 * GIB * share)


def test_the_margin_has_a_floor() -> None:
    assert margin_bytes(GIB, Overflow.SWAP) == 256 * MIB


def test_weights_are_not_repacked_where_ram_cannot_hold_the_copy() -> None:
    model = big_model()
    model = replace(model, tensors=tuple(replace(t, type="Q4_K") for t in model.tensors))
    roomy, tight = (solved(machine(ram=Ram(64 * GIB, n * GIB, overflow=Overflow.SWAP)), model) for n in (60, 8))
    assert roomy.chosen.settings.repack
    assert tight.verdict == "pages"
    assert not tight.chosen.settings.repack
    assert decision(tight, "repack").alternatives[0].outcome is Fate.DOES_NOT_FIT
