"""Sizes of a context, as src/llama-context.cpp of b11434 derives them."""

from __future__ import annotations

from planner.cost.shape import shape_of
from planner.plans.settings import FlashAttn, Tool
from tests.builders import make_model, make_settings


def test_context_is_padded_and_batches_are_cut_to_it() -> None:
    shape = shape_of(make_model(), make_settings(n_ctx=1000, n_ubatch=4096, n_batch=4096), Tool.SERVER)
    assert (shape.n_ctx, shape.n_ctx_seq, shape.n_tokens) == (1024, 1024, 1000)


def test_zero_context_means_the_training_context() -> None:
    assert shape_of(make_model(), make_settings(n_ctx=0), Tool.SERVER).n_ctx == 32768


def test_slots_share_the_context_unless_unified() -> None:
    apart = shape_of(make_model(), make_settings(n_ctx=4096, n_parallel=4), Tool.SERVER)
    assert (apart.n_ctx_seq, apart.n_stream, apart.n_ctx) == (1024, 4, 4096)
    joined = shape_of(make_model(), make_settings(n_ctx=4096, n_parallel=4, kv_unified=True), Tool.SERVER)
    assert (joined.n_ctx_seq, joined.n_stream) == (4096, 1)


def test_a_slot_is_padded_to_256_again() -> None:
    shape = shape_of(make_model(), make_settings(n_ctx=4096, n_parallel=3), Tool.SERVER)
    assert (shape.n_ctx_seq, shape.n_ctx, shape.n_tokens % 3) == (1536, 4608, 0)


def test_outputs_differ_by_tool() -> None:
    settings = make_settings(n_parallel=2)
    assert shape_of(make_model(), settings, Tool.SERVER).n_outputs == 2
    assert shape_of(make_model(), settings, Tool.FIT_PARAMS).n_outputs == 512
    assert shape_of(make_model(), settings, Tool.BENCH).n_seq == 1


def test_drafting_reserves_outputs_and_rollback_copies() -> None:
    model = make_model(arch="qwen35moe")
    shape = shape_of(model, make_settings(spec_type="draft-mtp"), Tool.SERVER)
    assert (shape.n_outputs, shape.n_rollback) == (4, 3)
    assert shape_of(make_model(), make_settings(spec_type="draft-mtp"), Tool.SERVER).n_rollback == 0


def test_flash_attention_off_by_setting_or_architecture() -> None:
    assert shape_of(make_model(), make_settings(), Tool.SERVER).flash_attn
    assert not shape_of(make_model(), make_settings(flash_attn=FlashAttn.OFF), Tool.SERVER).flash_attn
    assert not shape_of(make_model(arch="grok"), make_settings(), Tool.SERVER).flash_attn
