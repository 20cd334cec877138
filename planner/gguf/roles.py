"""What a tensor is for, from its name (and for experts its shape).

Names: ``LLM_TENSOR_NAMES`` in src/llama-arch.cpp; experts: ``LLM_FFN_EXPS_REGEX`` in common/common.h, b11434.
There is no table of architectures here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from planner.facts.model import AttentionKind, Role

_BLOCK: Final = re.compile(r"blk\.(\d+)\.(.+)")
_EXPERT: Final = re.compile(r"ffn_(?:up|down|gate|gate_up)_(?P<chunk>ch)?exps\.")
_ONE_EXPERT: Final = re.compile(r"ffn_(?:up|down|gate)\.\d+\.")
_IN_BLOCK: Final = tuple(
    (re.compile(pattern), role)
    for pattern, role in (
        (r"nextn\.", Role.NEXTN),
        (r"ffn_gate_inp|exp_probs_b|ffn_gate_tid2eid", Role.ROUTER),
        (r"ffn_\w+_shexp\.", Role.SHARED_EXPERT),
        (r"(ssm|time_mix)_|shortconv\.", Role.RECURRENT),
        (r"(\w+_)?norm(_\w+)?\.|indexer\.\w+_norm\.|cross_attn_norm|(attn|ffn)_res_score", Role.NORM),
        (r"(attn|cross_attn|vis_attn|indexer)[_.]", Role.ATTENTION),
        (r"ffn_(gate|up|down|latent_\w+|routed_\w+|act)\.|ffn\.act|channel_mix_|vis_(gate|up|down)\.", Role.DENSE_FFN),
    )
)
_OUTSIDE: Final = tuple(
    (re.compile(pattern), role)
    for pattern, role in (
        (r"per_layer_token_embd\.", Role.LOOKUP),
        (r"(token_embd|position_embd|token_types|masked_embd_\w+)(\.|$)", Role.EMBEDDING),
        (r"nextn\.", Role.NEXTN),
        (r"output\.", Role.OUTPUT),
        (r"((enc|dec|cls)\.)?(\w+_)?norm\.|output_res_score", Role.NORM),
    )
)


def layer_of(name: str) -> int | None:
    """``blk.7.attn_q.weight`` → 7; None outside the blocks."""
    match = _BLOCK.match(name)
    return int(match[1]) if match else None


def is_single_expert(name: str) -> bool:
    """True for ``blk.N.ffn_up.E.weight``: the layout before 2024, which llama.cpp no longer loads."""
    match = _BLOCK.match(name)
    return match is not None and _ONE_EXPERT.match(match[2]) is not None


def named_expert(name: str) -> bool:
    """True if llama.cpp's own pattern for expert tensors (``-ncmoe`` uses it) finds this name."""
    match = _BLOCK.match(name)
    return match is not None and _EXPERT.match(match[2]) is not None


def role_of(
    name: str,
    shape: tuple[int, ...],
    *,
    n_expert: int,
    n_chunk_expert: int,
    kind_of: Callable[[int], AttentionKind],
) -> Role:
    """The one role of a tensor.

    Args:
        n_expert, n_chunk_expert: last dimension of routed and of chunk expert tensors; 0 for none.
        kind_of: what a block caches; the projections of a recurrent block are RECURRENT.
    """
    match = _BLOCK.match(name)
    if match is None:
        return _first(_OUTSIDE, name)
    rest = match[2]
    expert = _EXPERT.match(rest)
    if expert:
        wanted = n_chunk_expert if expert["chunk"] else n_expert
        return Role.EXPERT if wanted > 0 and shape[-1] == wanted else Role.OTHER
    role = _in_block(rest)
    if role is Role.ATTENTION and kind_of(int(match[1])) is AttentionKind.RECURRENT:
        return Role.RECURRENT
    return role


@lru_cache(maxsize=512)
def _in_block(name: str) -> Role:
    """Without the block's number, names repeat from block to block."""
    return _first(_IN_BLOCK, name)


def _first(rules: tuple[tuple[re.Pattern[str], Role], ...], name: str) -> Role:
    return next((role for pattern, role in rules if pattern.match(name)), Role.OTHER)
