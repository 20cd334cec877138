"""Which steps read across tokens in a block."""

from __future__ import annotations

from planner.cost.attention import grouped_query, latent
from planner.cost.blocks import Block
from planner.cost.compressed import compressed
from planner.cost.draw import Env
from planner.cost.key_delta import key_delta
from planner.cost.latent_pooled import latent_pooled
from planner.cost.recurrent import delta_net, lightning, short_conv, state_space
from planner.cost.tape import Node
from planner.facts.model import AttentionKind


def has_mixer(block: Block) -> bool:
    """Whether a block reads across tokens at all."""
    return any(
        name in block.shapes
        for name in ("shortconv.in_proj", "ssm_in", "attn_kv_a_mqa", "attn_q", "attn_q_a", "attn_qkv")
    )


def mixer(env: Env, block: Block, x: Node, before: tuple[Node, Node] | None) -> Node:
    """What reads across tokens.

    Args:
        before: a state that was gathered before ``x`` (``rows_first``).
    """
    shapes = block.shapes
    if before and "shortconv.in_proj" in shapes:
        return short_conv(env, block, x, before)
    if before:
        return state_space(env, block, x, before)
    if "ssm_conv1d_q" in shapes:
        return key_delta(env, block, x)
    if block.layer.kind is AttentionKind.RECURRENT and "ssm_conv1d" in shapes and "ssm_dt.bias" in shapes:
        return delta_net(env, block, x)
    if block.layer.kind is AttentionKind.RECURRENT and "attn_qkv" in shapes and "ssm_conv1d" not in shapes:
        return lightning(env, block, x)
    if block.layer.kind is AttentionKind.COMPRESSED:
        return compressed(env, block, x)
    if "attn_kv_a_mqa" in shapes and "attn_v_b" in shapes:
        if env.traits.pool:
            return latent_pooled(env, block, x)
        return latent(env, block, x)
    return grouped_query(env, block, x)
