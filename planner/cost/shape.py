"""What the settings come to inside llama.cpp: padded context, real ubatch, streams, outputs."""

from __future__ import annotations

from typing import NamedTuple

from planner.facts.model import Model
from planner.plans.settings import FlashAttn, Settings, Tool

MTP = "draft-mtp"
DRAFT_N_MAX = 3
"""Default of ``--spec-draft-n-max`` (common/common.h, b11434)."""

NO_FLASH_ARCHS = frozenset(("grok",))
"""Architectures that force flash attention off (src/llama-context.cpp:3819, b11434)."""

ROLLBACK_ARCHS = frozenset(
    (
        "kimi-k3", "qwen35", "qwen35moe", "qwen4exp", "deepseek4", "glm5-next",
        "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe", "bailingmoe3",
    )
)  # fmt: skip
"""Architectures that keep draft-depth copies of their state (``llm_arch_supports_rs_rollback``,
src/llama-arch.cpp, b11434)."""


def pad(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


class Shape(NamedTuple):
    """Sizes of one context.

    Args:
        n_ctx: cells of all slots together, padded to 256.
        n_ctx_seq: cells of one stream.
        n_ubatch: ubatch, cut to batch and context.
        n_tokens: tokens of the largest graph: the ubatch, as a multiple of ``n_seq``.
        n_stream: separate caches (1 when unified).
        n_outputs: rows of logits the graph reserves.
        n_rollback: extra copies of recurrent state (``n_rs_seq``).
    """

    n_ctx: int
    n_ctx_seq: int
    n_ubatch: int
    n_tokens: int
    n_seq: int
    n_stream: int
    n_outputs: int
    n_rollback: int
    flash_attn: bool


def shape_of(model: Model, settings: Settings, tool: Tool) -> Shape:
    """Mirrors the ``llama_context`` constructor and ``sched_reserve`` (src/llama-context.cpp, b11434).

    llama-bench has one sequence. The server reserves one output row per slot (times one plus the draft
    depth under speculation, common/speculative.cpp); the other tools reserve one per token.
    Flash attention ``auto`` counts as on.
    """
    n_seq = 1 if tool is Tool.BENCH else max(settings.n_parallel, 1)
    asked = settings.n_ctx or model.n_ctx_train
    n_batch = min(asked, settings.n_batch)
    n_ubatch = min(n_batch, settings.n_ubatch or n_batch)
    n_ctx = pad(asked, 256)
    n_ctx_seq = n_ctx if settings.kv_unified else pad(n_ctx // n_seq, 256)
    n_ctx = n_ctx if settings.kv_unified else n_ctx_seq * n_seq
    drafting = settings.spec_type == MTP
    n_tokens = min(n_ctx, n_ubatch)
    wanted = n_seq * (1 + (DRAFT_N_MAX if drafting else 0)) if tool is Tool.SERVER else n_batch
    return Shape(
        n_ctx=n_ctx,
        n_ctx_seq=n_ctx_seq,
        n_ubatch=n_ubatch,
        n_tokens=pad(n_tokens, n_seq),
        n_seq=n_seq,
        n_stream=1 if settings.kv_unified else n_seq,
        n_outputs=min(n_tokens, wanted),
        n_rollback=DRAFT_N_MAX if drafting and model.arch in ROLLBACK_ARCHS else 0,
        flash_attn=settings.flash_attn is not FlashAttn.OFF and model.arch not in NO_FLASH_ARCHS,
    )


def draft_shape(shape: Shape) -> Shape:
    """The draft context of a main context: one output per sequence, no rollback
    (``common_base_params_to_speculative``, common/speculative.cpp, b11434)."""
    return shape._replace(n_outputs=min(shape.n_tokens, shape.n_seq), n_rollback=0)
