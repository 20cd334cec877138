from dataclasses import replace

import pytest

from planner.facts.machine import Backend
from planner.facts.model import AttentionKind
from planner.plans.settings import FlashAttn
from policies import attention
from tests.policies.problems import big_model, card, explained, machine, problem, solved


def with_layers(**changes):
    model = big_model()
    return replace(model, layers=tuple(replace(layer, **changes) for layer in model.layers))


def test_on_for_heads_with_a_kernel() -> None:
    assert solved(machine(card(20))).chosen.settings.flash_attn is FlashAttn.ON


@pytest.mark.parametrize(
    ("k", "v", "expected"), [(192, 128, "on"), (48, 48, "off"), (128, 64, "off"), (512, 512, "on")]
)
def test_by_head_size(k: int, v: int, expected: str) -> None:
    model = with_layers(n_head=16, head_k=k, head_v=v, n_embd_k=2 * k, n_embd_v=2 * v)
    assert solved(machine(card(20)), model).chosen.settings.flash_attn == expected


def test_some_head_sizes_need_many_query_heads_per_kv_head() -> None:
    model = with_layers(n_head=4, head_k=192, head_v=128, n_embd_k=384, n_embd_v=256)
    assert solved(machine(card(20)), model).chosen.settings.flash_attn is FlashAttn.OFF


def test_the_kernel_table_is_for_cuda_only() -> None:
    model = with_layers(head_k=48, head_v=48, n_embd_k=96, n_embd_v=96)
    assert solved(machine(card(20, backend=Backend.VULKAN)), model).chosen.settings.flash_attn is FlashAttn.ON


def test_off_where_llama_cpp_forces_it() -> None:
    plan = solved(machine(card(20)), replace(big_model(), arch="grok"))
    assert plan.chosen.settings.flash_attn is FlashAttn.OFF


def test_abstains_without_attention() -> None:
    model = with_layers(kind=AttentionKind.RECURRENT, n_embd_k=0, n_embd_v=0, state_r=256, state_s=4096)
    assert explained(attention.RULE, problem(machine(card(20)), model)) == ()
