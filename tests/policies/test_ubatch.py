from math import ceil

import pytest

from planner.facts.workload import Goal
from planner.plans.decision import Fate
from policies.ubatch import useful_sizes
from tests.policies.problems import card, decision, machine, solved


def test_a_large_ubatch_when_host_experts_are_copied_for_a_long_prompt() -> None:
    short = solved(machine(card(6)), prompt_tokens=256, answer_tokens=512)
    long = solved(machine(card(6)), prompt_tokens=8192, answer_tokens=64, n_ctx=16384)
    assert short.chosen.settings.n_ubatch <= 512
    assert long.chosen.settings.n_ubatch >= 2048
    assert long.chosen.settings.n_batch >= long.chosen.settings.n_ubatch


def test_never_larger_than_the_prompt_needs() -> None:
    for prompt in (100, 600, 3000, 5000):
        plan = solved(machine(card(8)), prompt_tokens=prompt, n_ctx=16384)
        assert plan.chosen.settings.n_ubatch <= max(512, 2 * prompt)


@pytest.mark.parametrize(
    ("prompt", "sizes"),
    [
        (300, ()),
        (512, ()),
        (700, (768,)),
        (4096, (1024, 2048, 4096)),
        (5000, (1024, 1792, 2560, 5120)),
        (9000, (1024, 2048, 3072, 4608, 9216)),
        (10000, (1024, 2048, 3584, 5120)),
        (16384, (1024, 2048, 4096, 8192)),
        (1_000_000, (1024, 2048, 4096, 8192)),
    ],
)
def test_no_larger_than_the_same_passes_need(prompt: int, sizes: tuple[int, ...]) -> None:
    found = useful_sizes(prompt)
    assert found == sizes
    assert all(ceil(prompt / size) < ceil(prompt / (size - 256)) or size == 1024 for size in found)


def test_decode_alone_buys_no_compute_buffer() -> None:
    decode = solved(machine(card(6)), goal=Goal.DECODE)
    prefill = solved(machine(card(6)), goal=Goal.PREFILL)
    assert decode.chosen.settings.n_cpu_moe <= prefill.chosen.settings.n_cpu_moe
    assert decode.chosen.settings.n_ubatch < prefill.chosen.settings.n_ubatch


def test_neighbours_are_priced() -> None:
    said = decision(solved(machine(card(6)), prompt_tokens=8192, n_ctx=16384), "n_ubatch")
    assert {a.outcome for a in said.alternatives} <= {Fate.SLOWER, Fate.DOES_NOT_FIT}
    assert said.alternatives


def test_abstains_to_the_default_on_a_cpu() -> None:
    assert solved(machine()).chosen.settings.n_ubatch == 512
