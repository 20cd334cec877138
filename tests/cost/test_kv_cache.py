"""Context memory against figures of llama.cpp b11434 (``llama-fit-params``) and its cache constructors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.kv_cache import KvTable
from planner.cost.layout import layer_devices, spans
from planner.cost.shape import shape_of
from planner.cost.tape import HOST
from planner.facts.model import AttentionKind, Layer
from planner.plans.settings import FlashAttn, Settings, Tool
from planner.units import MIB
from tests.builders import make_layer, make_model, make_settings


def context(layers: tuple[Layer, ...], settings: Settings, **kw: Any) -> dict[str, int]:
    """Context bytes by device, everything on CUDA0."""
    model = make_model(layers=layers)
    shape = shape_of(model, settings, Tool.SERVER)
    table = KvTable(model, settings.type_k, settings.type_v, flash_attn=shape.flash_attn, **kw)
    layout = spans(layer_devices(model.n_layer, settings.n_gpu_layers, ("CUDA0",), (1.0,)))
    found = table.terms(layout, shape, settings)
    return {device: sum(t.n_bytes for t in terms) for device, terms in found.items()}


def layers(n: int, **changes: Any) -> tuple[Layer, ...]:
    return tuple(make_layer(i, **changes) for i in range(n))


@pytest.mark.parametrize(
    ("kind", "mib"),
    [("f16", 3072), ("q8_0", 1632)],  # qwen3-30b-a3b, c 32768: 48 blocks of 512 + 512 elements
)
def test_grouped_query(kind: str, mib: int) -> None:
    blocks = layers(48, n_embd_k=512, n_embd_v=512)
    assert context(blocks, make_settings(n_ctx=32768, type_k=kind, type_v=kind)) == {"CUDA0": mib * MIB}


@pytest.mark.parametrize(("n_ubatch", "mib"), [(512, 786), (4096, 870)])
def test_sliding_window_grows_with_the_ubatch(n_ubatch: int, mib: int) -> None:
    # gpt-oss-20b, c 32768 f16: 12 full blocks, 12 with window 128, 512 + 512 elements each
    blocks = tuple(make_layer(i, n_embd_k=512, n_embd_v=512, window=0 if i % 2 else 128) for i in range(24))
    settings = make_settings(n_ctx=32768, n_ubatch=n_ubatch, n_batch=4096)
    assert context(blocks, settings) == {"CUDA0": mib * MIB}


@pytest.mark.parametrize(
    ("n_parallel", "unified", "cells"),
    # window 1024, u 512 (src/llama-kv-cache-iswa.cpp:66): one slot 1,536; four unified 4,608; four apart 4 x 1,536
    [(1, False, 1536), (4, True, 4608), (4, False, 4 * 1536)],
)
def test_sliding_window_grows_with_the_slots(n_parallel: int, unified: bool, cells: int) -> None:
    settings = make_settings(n_ctx=65536, n_parallel=n_parallel, kv_unified=unified)
    assert context(layers(1, window=1024), settings) == {"CUDA0": cells * 512}


def test_swa_full_keeps_the_whole_context() -> None:
    whole = context(layers(2), make_settings(n_ctx=8192))
    assert context(layers(2, window=128), make_settings(n_ctx=8192, swa_full=True)) == whole


def test_latent_attention_keeps_k_only() -> None:
    # deepseek-v2-lite, c 32768 f16: 27 blocks of 512 + 64 elements
    blocks = layers(27, kind=AttentionKind.MLA, n_embd_k=576, n_embd_v=0)
    assert context(blocks, make_settings(n_ctx=32768)) == {"CUDA0": 972 * MIB}


def test_recurrent_state_is_f32_per_sequence_and_ignores_the_context() -> None:
    # qwen3.6-35b-a3b: 30 blocks of 24,576 + 524,288 elements
    blocks = layers(30, kind=AttentionKind.RECURRENT, n_embd_k=0, n_embd_v=0, state_r=24576, state_s=524288)
    one = context(blocks, make_settings(n_ctx=4096))["CUDA0"]
    assert one == 30 * (24576 + 524288) * 4
    assert context(blocks, make_settings(n_ctx=131072))["CUDA0"] == one
    assert context(blocks, make_settings(n_ctx=16384, n_parallel=4))["CUDA0"] == 4 * one


def test_rollback_multiplies_the_state() -> None:
    model = make_model(layers=layers(1, n_embd_k=0, n_embd_v=0, state_s=1000), arch="qwen35moe")
    settings = make_settings(spec_type="draft-mtp")
    shape = shape_of(model, settings, Tool.SERVER)
    table = KvTable(model, "f16", "f16", flash_attn=True)
    terms = table.terms(spans(("CUDA0", "CUDA0")), shape, settings)["CUDA0"]
    assert terms[0].n_bytes == 4 * 1000 * (1 + 3)


def test_indexer_cache_stands_beside_the_latent_one() -> None:
    blocks = layers(2, kind=AttentionKind.MLA, n_embd_k=576, n_embd_v=0, indexer_k=128)
    assert context(blocks, make_settings()) == {"CUDA0": 2 * (576 + 128) * 2 * 4096}


def test_shared_and_empty_blocks_own_nothing() -> None:
    blocks = (make_layer(0), make_layer(1, kind=AttentionKind.SHARED, n_embd_k=0, n_embd_v=0))
    assert context(blocks, make_settings()) == context(layers(1), make_settings())


def test_prediction_blocks_are_cached_by_the_draft_context_only() -> None:
    blocks = (make_layer(0), make_layer(1, nextn=True))
    assert context(blocks, make_settings()) == context(layers(1), make_settings())
    assert context(blocks, make_settings(), nextn=True) == context(layers(1), make_settings())


def test_without_flash_attention_v_is_as_wide_as_the_widest_block() -> None:
    blocks = (make_layer(0, n_embd_v=128), make_layer(1, n_embd_v=256))
    on = context(blocks, make_settings())["CUDA0"]
    off = context(blocks, make_settings(flash_attn=FlashAttn.OFF))["CUDA0"]
    assert off - on == 128 * 2 * 4096


def test_compressed_caches_are_padded_and_per_sequence() -> None:
    # src/llama-kv-cache-dsv4.cpp:1236-1314 (b11434): raw window, c/4 with an indexer, per sequence even when unified
    block = make_layer(
        0, kind=AttentionKind.COMPRESSED, n_embd_k=512, n_embd_v=0, window=128, compress_ratio=4, indexer_k=128
    )
    settings = make_settings(n_ctx=4096, n_parallel=2, kv_unified=True)
    raw, compressed = 768 * 512 * 2, 1024 * (512 + 128) * 2
    assert context((block,), settings) == {"CUDA0": 2 * (raw + compressed)}


def test_nkvo_and_host_layers() -> None:
    assert set(context(layers(4), make_settings(kv_offload=False))) == {HOST}
    halves = context(layers(4), make_settings(n_gpu_layers=3))
    assert halves[HOST] == halves["CUDA0"]


@given(low=st.integers(1, 40), more=st.integers(0, 40), window=st.sampled_from([0, 128, 4096]))
def test_more_context_never_needs_less(low: int, more: int, window: int) -> None:
    def size(n: int) -> int:
        return context(layers(3, window=window), make_settings(n_ctx=256 * n))["CUDA0"]

    assert size(low + more) >= size(low)
