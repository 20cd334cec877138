"""What a graph needs to know of a model as a whole: numbers of its header, and the few facts only its name tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from planner.cost.blocks import Block
from planner.facts.model import AttentionKind, Model, Role

_NO_MIXED_ARCHS: Final = frozenset(("cogvlm", "deepseek4", "granite-switch", "eagle3", "dflash", "gemma4-assistant"))
"""Architectures without a graph for token and embedding rows in one batch (``llm_arch_supports_mixed_batch``,
src/llama-arch.cpp, b11434)."""

_RESIDUAL_FIRST_ARCHS: Final = frozenset(("jamba", "lfm2", "lfm2moe"))
"""Architectures that add a block's output to the residual, not the other way round (src/models/*.cpp, b11434)."""

_NO_ROPE_ARCHS: Final = frozenset(("jamba", "nemotron_h", "nemotron_h_moe", "kimi-linear", "kimi-k3", "glm5-next"))
"""Architectures without rotary positions (``llama_model_rope_type``, src/llama-model.cpp, b11434)."""

_NORMED_WEIGHTS_ARCHS: Final = frozenset(
    (
        "arctic", "dbrx", "ernie4_5-moe", "gemma4", "granite", "granitehybrid", "granitemoe", "granite_swa", "grok",
        "grovemoe", "hunyuan-moe", "kimi-linear", "lfm2moe", "llama", "maple", "mellum", "mimo2", "minimax-01",
        "minimax-m2", "mistral3", "phimoe", "qwen35moe", "qwen3moe", "qwen3next", "qwen3vlmoe", "qwen4exp", "rnd1",
        "smallthinker",
    )
)  # fmt: skip
"""Architectures that always make expert weights sum to one; others do as ``expert_weights_norm`` says
(``build_moe_ffn`` calls in src/models/*.cpp, b11434)."""

_WEIGHTS_FIRST_ARCHS: Final = frozenset(("llama4",))
"""Architectures whose router weights multiply the input of experts (``weight_before_ffn`` in ``build_moe_ffn``,
src/llama-graph.cpp, b11434)."""

_PLAIN_INDEXER_ARCHS: Final = frozenset(("hy_v4",))
"""Architectures whose lightning indexer is not rotated by one more multiply (src/models/hy-v4.cpp, b11434)."""

_BLOCK_CHOOSING_ARCHS: Final = frozenset(("minimax-m3",))
"""Architectures that read ``attention.indexer.block_size`` (src/models/minimax-m3.cpp, b11434)."""

_UNCACHED_ARCHS: Final = frozenset(
    (
        "bert", "clef", "dream", "eurobert", "gemma-embedding", "jina-bert-v2", "jina-bert-v3", "llada", "llada-moe",
        "llama-embed", "modern-bert", "neo-bert", "nomic-bert", "nomic-bert-moe", "rnd1",
    )
)  # fmt: skip
"""Architectures whose tokens see their own batch only (``build_attn_inp_no_cache`` in src/models/*.cpp, b11434)."""

_SQRT_SOFTPLUS: Final = 4
"""``LLAMA_EXPERT_GATING_FUNC_TYPE_SQRT_SOFTPLUS`` (src/llama-hparams.h, b11434)."""


class Traits(NamedTuple):
    """Facts about all blocks.

    Args:
        head_bytes: of the output matrix, or of the embedding that stands in for it.
        lookup_width: elements per token gathered from per-layer or n-gram tables on the host; 0 without such tables.
        hyper: parallel residual streams (hyper-connections), else 1.
        indexed: MLA blocks choose cells by an indexer.
        turned_indexer: Q and K of a lightning indexer are rotated by one more multiply.
        pool: cells that an indexer scores together; 0 without such an indexer.
        bank_every: every n-th block banks its residual for later ones.
        block_size: positions per block that an indexer of groups of heads chooses; 0 without such an indexer.
        ratios: tokens per compressed entry.
        gate_steps: of the router's activation: one, or a root after a softplus.
        mixed: there is a branch for token and embedding rows in one batch.
        scaled_embedding: embedding rows are multiplied by a constant.
        normed_weights, scaled_weights: weights of the chosen experts are made to sum to one, then scaled.
        weights_first: the weights multiply what experts read, not their results.
        residual_first: a residual sum is written over the residual, not over what is added.
        rope: Q and K are rotated by position.
        cached: attention reads a cache, not only the batch.
        irregular: blocks with indexers, whose memory does not settle after a few repeats.
        rough: steps that are known to move large tensors to places of their own (see benchmarks/memory/README.md).
    """

    n_embd: int
    n_vocab: int
    head_bytes: int
    n_top_k: int
    n_groups: int
    lookup_width: int
    hyper: int
    indexed: bool
    turned_indexer: bool
    pool: int
    bank_every: int
    block_size: int
    ratios: tuple[int, ...]
    gate_steps: int
    mixed: bool
    scaled_embedding: bool
    normed_weights: bool
    scaled_weights: bool
    weights_first: bool
    residual_first: bool
    rope: bool
    cached: bool
    irregular: bool
    rough: bool


def traits_of(model: Model, blocks: Sequence[Block]) -> Traits:
    header, arch = dict(model.metadata), model.arch
    outside = {tensor.name: tensor.n_bytes for tensor in model.tensors if tensor.layer is None}

    def number(key: str) -> int:
        value = header.get(f"{arch}.{key}")
        return value if isinstance(value, int) else 0

    compressed = {b.layer.compress_ratio for b in blocks if b.layer.kind is AttentionKind.COMPRESSED}
    return Traits(
        n_embd=model.n_embd,
        n_vocab=model.n_vocab,
        head_bytes=outside.get("output.weight") or outside.get("token_embd.weight", 0),
        n_top_k=number("attention.indexer.top_k"),
        n_groups=number("expert_group_count"),
        lookup_width=_lookup_width(model, blocks),
        hyper=max(number("hyper_connection.count"), 1),
        indexed=any(b.layer.indexer_k and b.layer.kind is AttentionKind.MLA for b in blocks),
        turned_indexer=arch not in _PLAIN_INDEXER_ARCHS,
        pool=max(b.pool for b in blocks),
        bank_every=max(number("attn_res.block_size"), 1),
        block_size=number("attention.indexer.block_size") if arch in _BLOCK_CHOOSING_ARCHS else 0,
        ratios=tuple(sorted(compressed - {0})),
        gate_steps=1 + (number("expert_gating_func") == _SQRT_SOFTPLUS),
        mixed=arch not in _NO_MIXED_ARCHS,
        scaled_embedding=header.get(f"{arch}.embedding_scale") not in (None, 0.0),
        normed_weights=bool(header.get(f"{arch}.expert_weights_norm")) or arch in _NORMED_WEIGHTS_ARCHS,
        scaled_weights=header.get(f"{arch}.expert_weights_scale") not in (None, 0.0, 1.0),
        weights_first=arch in _WEIGHTS_FIRST_ARCHS,
        residual_first=arch in _RESIDUAL_FIRST_ARCHS,
        rope=arch not in _NO_ROPE_ARCHS,
        cached=arch not in _UNCACHED_ARCHS,
        irregular=any(b.layer.indexer_k for b in blocks),
        rough=bool(compressed) or any(b.pool or "ssm_d" in b.shapes for b in blocks),
    )


def _lookup_width(model: Model, blocks: Sequence[Block]) -> int:
    table = next((t for t in model.tensors if t.layer is None and t.role is Role.LOOKUP), None)
    gathered = next((b.shapes["ple_key"][0] for b in blocks if "ple_key" in b.shapes), None)
    return gathered or (table.shape[0] if table else 0)
