from __future__ import annotations

import pytest

from planner.facts.model import AttentionKind, Role
from planner.gguf.roles import is_single_expert, layer_of, named_expert, role_of

NAMES = {
    Role.EMBEDDING: "token_embd.weight position_embd.weight token_types.weight",
    Role.LOOKUP: "per_layer_token_embd.weight",
    Role.OUTPUT: "output.weight output.bias",
    Role.NORM: "output_norm.weight output_norm.bias token_embd_norm.weight blk.0.attn_norm.weight "
    "blk.0.ffn_norm.weight blk.0.attn_q_norm.weight blk.0.attn_kv_a_norm.weight blk.0.post_attention_norm.weight "
    "blk.0.post_ffw_norm_1.weight "
    "blk.0.attn_norm_2.weight blk.0.layer_output_norm.weight blk.0.indexer.k_norm.bias blk.0.ffn_norm_exps.weight "
    "blk.0.attn_compressor_norm.weight blk.0.ple_norm_key.weight enc.output_norm.weight per_layer_proj_norm.weight",
    Role.ATTENTION: "blk.0.attn_q.weight blk.0.attn_qkv.weight blk.0.attn_gate.weight blk.0.attn_output.bias "
    "blk.0.attn_sinks.weight blk.0.attn_kv_a_mqa.weight blk.0.attn_k_b.weight blk.0.indexer.proj.weight "
    "blk.0.indexer_compressor_kv.weight blk.0.attn_compressor_ape.weight blk.0.vis_attn_qkv.weight",
    Role.RECURRENT: "blk.0.ssm_in.weight blk.0.ssm_a blk.0.ssm_dt.bias blk.0.ssm_norm.weight blk.0.time_mix_w1.weight "
    "blk.0.shortconv.in_proj.weight",
    Role.ROUTER: "blk.0.ffn_gate_inp.weight blk.0.ffn_gate_inp_shexp.weight blk.0.exp_probs_b.bias "
    "blk.0.ffn_gate_tid2eid.weight",
    Role.SHARED_EXPERT: "blk.0.ffn_gate_shexp.weight blk.0.ffn_down_shexp.weight blk.0.ffn_up_shexp.scale",
    Role.DENSE_FFN: "blk.0.ffn_gate.weight blk.0.ffn_down.bias blk.0.ffn_up.weight blk.0.ffn_latent_down.weight "
    "blk.0.channel_mix_key.weight blk.0.vis_up.weight",
    Role.NEXTN: "blk.0.nextn.eh_proj.weight blk.0.nextn.enorm.weight nextn.pre_projection.weight",
    Role.OTHER: "rope_freqs.weight blk.0.hc_attn_fn.weight blk.0.layer_output_scale.weight per_layer_model_proj.weight",
}
EXPERTS = [
    f"ffn_{which}_exps.{end}"
    for which in ("gate", "up", "down", "gate_up")
    for end in ("weight", "bias", "scale", "input_scale")
]


def role(
    name: str, shape: tuple[int, ...] = (64, 64), kind: AttentionKind = AttentionKind.FULL, chunks: int = 0
) -> Role:
    return role_of(name, shape, n_expert=8, n_chunk_expert=chunks, kind_of=lambda _: kind)


@pytest.mark.parametrize(("expected", "name"), [(r, n) for r, names in NAMES.items() for n in names.split()])
def test_every_name_has_its_role(expected: Role, name: str) -> None:
    assert role(name) is expected


@pytest.mark.parametrize("rest", EXPERTS)
def test_experts_by_name_and_last_dimension(rest: str) -> None:
    name = f"blk.13.{rest}"
    assert named_expert(name)
    assert role(name, (64, 32, 8)) is Role.EXPERT
    assert role(name, (8,)) is Role.EXPERT
    assert role(name, (64, 32, 7)) is Role.OTHER
    assert role_of(name, (64, 32, 8), n_expert=0, n_chunk_expert=0, kind_of=lambda _: AttentionKind.FULL) is Role.OTHER


def test_chunk_experts_have_their_own_count() -> None:
    name = "blk.0.ffn_up_chexps.weight"
    assert role(name, (64, 32, 4), chunks=4) is Role.EXPERT
    assert role(name, (64, 32, 8), chunks=4) is Role.OTHER
    assert role(name, (64, 32, 4)) is Role.OTHER


def test_projections_of_a_recurrent_block() -> None:
    for name in ("blk.0.attn_qkv.weight", "blk.0.attn_gate.weight", "blk.0.attn_output.weight"):
        assert role(name, kind=AttentionKind.RECURRENT) is Role.RECURRENT
        assert role(name, kind=AttentionKind.SWA) is Role.ATTENTION
    assert role("blk.0.attn_norm.weight", kind=AttentionKind.RECURRENT) is Role.NORM


def test_layer_numbers() -> None:
    assert layer_of("blk.127.attn_q.weight") == 127
    assert layer_of("output.weight") is None
    assert layer_of("dec.blk.1.attn_q.weight") is None


def test_one_tensor_per_expert() -> None:
    assert is_single_expert("blk.0.ffn_gate.7.weight")
    assert not is_single_expert("blk.0.ffn_gate.weight")
    assert not named_expert("blk.0.ffn_gate_inp.weight")
