from dataclasses import replace

import pytest

from planner.cost.evaluate import Evaluator
from planner.cost.model import CostModel
from planner.facts.machine import Backend, Engine
from planner.facts.reading import Reading, Source
from planner.plans.plan import Candidate
from planner.plans.settings import Settings
from planner.plans.speed import Band, Resource, Speed
from planner.search.engine import search
from policies import RULES, op_offload
from tests.policies.problems import card, decision, explained, machine, problem, solved

SLOW_LINK = Reading(2e8, Source.MEASURED)


def test_the_gpu_computes_host_experts_of_long_prompts() -> None:
    plan = solved(machine(card(4)), prompt_tokens=4096)
    assert plan.chosen.settings.n_cpu_moe > 0 and plan.chosen.settings.op_offload
    found = decision(plan, "op_offload")
    assert found.alternatives[0].value is False and (found.alternatives[0].by or 0) > 1


def test_another_engine_copies_from_another_batch_on() -> None:
    assert "batches of 32 tokens" in decision(solved(machine(card(4)), prompt_tokens=4096), "op_offload").headline
    ik = replace(machine(card(4)), engine=Engine("ik_llama.cpp"))
    given = problem(ik, prompt_tokens=4096)
    share = given.model.n_expert_used / given.model.n_expert
    assert f"batches of {32 / share:,.0f} tokens" in explained(op_offload.RULE, given)[0].headline


def test_a_slow_link_leaves_them_to_the_cpu() -> None:
    slow = card(4, h2d_pinned_bps=SLOW_LINK, h2d_pageable_bps=SLOW_LINK)
    plan = solved(machine(slow), prompt_tokens=256, answer_tokens=64)
    assert not plan.chosen.settings.op_offload
    assert "faster than the link" in decision(plan, "op_offload").headline


@pytest.mark.parametrize(("without", "both"), [(400.0, True), (81.0, True), (79.0, False)])
def test_both_are_tried_where_the_prompt_takes_little_more(without: float, both: bool) -> None:
    """Prompts of 100 tok/s. The turn says nothing: with all experts in RAM one of the two may page."""
    given = problem(machine(card(4)), prompt_tokens=100)
    whole = search(given, RULES, Evaluator(CostModel(given.model, given.machine), given.workload))

    def evaluate(settings: Settings) -> Candidate:
        prefill, turn = (100.0, 3.5) if settings.op_offload else (without, 1000.0)
        speed = Speed(*(Band(n, n, n) for n in (1.0, prefill, turn)), Resource.RAM)
        return replace(whole.evaluate(settings), speed=speed)

    opened = dict(op_offload.propose(given, whole.draft, evaluate).domains)["op_offload"]
    assert opened == ((True, False) if both else (True,))


def test_without_room_for_copies_the_reason_is_their_buffer() -> None:
    given = problem(machine(card(4)), prompt_tokens=4096)
    found = search(given, RULES, Evaluator(CostModel(given.model, given.machine), given.workload))
    chosen = found.best()
    assert chosen is not None and chosen.settings.op_offload
    off = found.evaluate(replace(chosen.settings, op_offload=False))
    (said,) = op_offload.explain(given, found.draft, off, found.evaluate)
    assert "buffer of copied experts" in said.headline


def test_abstains_where_every_expert_is_on_the_gpu() -> None:
    assert explained(op_offload.RULE, problem(machine(card(20)))) == ()


def test_abstains_without_a_gpu_and_for_remote_devices() -> None:
    assert explained(op_offload.RULE, problem(machine())) == ()
    remote = problem(machine(card(6, backend=Backend.RPC)))
    assert explained(op_offload.RULE, replace(remote)) == ()


def test_the_prompt_is_the_users_only_where_it_was_given() -> None:
    def source(**work: int) -> Source:
        evidence = decision(solved(machine(card(4)), **work), "op_offload").because
        return next(item.source for item in evidence if item.fact == "prompt")

    assert source() is Source.ASSUMED
    assert source(prompt_tokens=3000) is Source.USER
