"""What llama.cpp refuses whatever the memory: ``llama_init_from_model``, src/llama-context.cpp (b11434)."""

from dataclasses import replace

import pytest

from planner.cost.startable import objections
from planner.facts.model import AttentionKind
from planner.plans.settings import FlashAttn
from tests.builders import make_layer, make_model, make_settings


@pytest.mark.parametrize(
    ("kind", "pair", "starts"),
    [
        (AttentionKind.FULL, ("q8_0", "q4_0"), True),
        (AttentionKind.MLA, ("q8_0", "q8_0"), True),
        (AttentionKind.MLA, ("q8_0", "q4_0"), False),
        (AttentionKind.COMPRESSED, ("f16", "q8_0"), False),
    ],
)
def test_some_attention_needs_equal_types(kind: AttentionKind, pair: tuple[str, str], starts: bool) -> None:
    model = make_model(layers=(make_layer(0, kind=kind),))
    settings = make_settings(type_k=pair[0], type_v=pair[1], flash_attn=FlashAttn.ON)
    assert (objections(model, settings) == ()) is starts


def test_a_quantised_v_needs_flash_attention() -> None:
    off = make_settings(type_k="q8_0", type_v="q8_0", flash_attn=FlashAttn.OFF)
    assert "flash attention" in objections(make_model(), off)[0]
    assert objections(make_model(), replace(off, type_v="f16")) == ()
    assert objections(make_model(), replace(off, flash_attn=FlashAttn.ON)) == ()
    assert objections(make_model(arch="grok"), replace(off, flash_attn=FlashAttn.ON)) != ()


def test_blocks_must_divide_the_heads() -> None:
    model = make_model(layers=(make_layer(0, head_k=80, n_embd_k=160),))
    assert "do not divide K heads of 80" in objections(model, make_settings(type_k="q8_0"))[0]
    assert objections(model, make_settings()) == ()
