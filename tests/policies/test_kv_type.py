from dataclasses import replace

import pytest

from planner.errors import OptionError
from planner.facts.machine import Engine, Overflow, Ram
from planner.facts.model import AttentionKind
from planner.plans.decision import Fate
from planner.units import GIB
from tests.builders import make_layer
from tests.policies.problems import big_model, card, decision, machine, solved


def pair(plan):
    return plan.chosen.settings.type_k, plan.chosen.settings.type_v


def test_f16_unless_told_otherwise() -> None:
    plan = solved(machine(card(6)))
    assert pair(plan) == ("f16", "f16")
    said = decision(plan, "type_k")
    assert said.lossless
    assert said.alternatives[0].outcome is Fate.LOSSY


def test_a_wish_is_obeyed_and_called_lossy() -> None:
    plan = solved(machine(card(6)), kv=("q8_0", "q8_0"))
    assert pair(plan) == ("q8_0", "q8_0")
    assert not decision(plan, "type_v").lossless


def test_a_tight_context_moves_experts_not_precision() -> None:
    plan = solved(machine(card(6)), n_ctx=131072)
    assert pair(plan) == ("f16", "f16")


def test_q8_0_only_where_f16_fits_nowhere_and_it_says_so() -> None:
    small = machine(card(2.5), ram=Ram(20 * GIB, 10 * GIB, overflow=Overflow.SWAP))
    plan = solved(small, n_ctx=1_000_192)
    assert pair(plan) == ("q8_0", "q8_0")
    assert "lossy-kv" in [c.code for c in plan.cautions]
    assert not decision(plan, "type_k").lossless


def test_a_pair_without_a_kernel_is_named() -> None:
    engine = Engine("llama.cpp", 11549, kv_pairs_on_gpu=("f16:f16", "q8_0:q8_0"))
    plan = solved(replace(machine(card(6)), engine=engine), kv=("q8_0", "q4_0"))
    assert "kv-pair-without-kernel" in [c.code for c in plan.cautions]


def test_a_pair_that_llama_cpp_refuses_is_a_usage_error() -> None:
    model = big_model()
    mla = replace(model, layers=tuple(replace(x, kind=AttentionKind.MLA, n_embd_v=0) for x in model.layers))
    with pytest.raises(OptionError, match="equal K and V types"):
        solved(machine(card(6)), mla, kv=("q8_0", "q4_0"))


def test_pinned_switches_of_the_cache_count_where_f16_is_tried() -> None:
    """1M tokens of f16 are 12 GiB in 24 full-length caches; windows of 128 tokens need next to nothing."""
    small = machine(ram=Ram(16 * GIB, 10 * GIB, overflow=Overflow.KILL))
    model = big_model(layers=tuple(make_layer(i, window=128) for i in range(24)))
    assert pair(solved(small, model, n_ctx=1 << 20)) == ("f16", "f16")
    assert pair(solved(small, model, n_ctx=1 << 20, pins=(("swa_full", "on"),))) == ("q8_0", "q8_0")
