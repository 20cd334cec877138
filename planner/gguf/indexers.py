"""Caches of sparse-attention indexers: one key head beside the block's own cache.

src/llama-kv-cache-dsa.cpp, src/llama-kv-cache-msa.cpp, src/llama-memory-hybrid-idx.cpp, src/llama-kv-cache-dsv4.cpp
and the filters of ``llama_model::create_memory`` in src/llama-model.cpp, b11434.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.facts.model import AttentionKind, Layer
from planner.gguf.hyperparams import Hparams, Keys

Widths = tuple[tuple[int, int], ...]
"""(K, V) elements per token for each block."""


def indexer_widths(keys: Keys, hp: Hparams, layers: tuple[Layer, ...]) -> Widths:
    """What the indexer of each block caches; zeros where there is none.

    Raises:
        ModelFileError: a key of the indexer is missing or wrong.
    """
    rule = _RULES.get(keys.arch)
    return rule(keys, hp, layers) if rule else ((0, 0),) * hp.n_layer_all


def _dsa(keys: Keys, hp: Hparams, layers: tuple[Layer, ...]) -> Widths:
    head, full = keys.required("attention.indexer.key_length"), _full(keys, hp)
    value = 0 if hp.mla else hp.head_v
    return tuple(
        (head, value) if not x.nextn and full[x.index] and x.kind is not AttentionKind.SWA else (0, 0) for x in layers
    )


def _dsa_if_sparse(keys: Keys, hp: Hparams, layers: tuple[Layer, ...]) -> Widths:
    if not keys.uint("attention.indexer.top_k", 0):
        return ((0, 0),) * len(layers)
    return _dsa(keys, hp, layers)


def _full(keys: Keys, hp: Hparams) -> tuple[int, ...]:
    """1 for blocks with an indexer of their own; the others reuse what the last one chose."""
    n = hp.n_layer
    name = "attention.indexer.types"
    if keys.arch == "deepseek32":
        return (1,) * n
    if keys.arch == "dots3note":
        stored = keys.array(name) or ()
        return tuple(stored[:n]) + (0,) * (n - len(stored))
    return keys.per_layer(name, n) or _full_by_default(keys.arch, hp)


def _full_by_default(arch: str, hp: Hparams) -> tuple[int, ...]:
    """glm-dsa: every block below a training context of 2^20, from then on GLM-5.2's (src/models/glm-dsa.cpp)."""
    if arch == "hy_v4":
        return (0,) * hp.n_layer
    if arch == "glm-dsa" and hp.n_ctx_train >= 1 << 20:
        return tuple(int(il < 2 or (il < 78 and (il - 2) % 4 == 0)) for il in range(hp.n_layer))
    return (1,) * hp.n_layer


def _msa(keys: Keys, hp: Hparams, layers: tuple[Layer, ...]) -> Widths:
    head, lead = keys.required("attention.indexer.key_length"), keys.uint("leading_dense_block_count", 0)
    return tuple((head, 0 if hp.mla else x.head_v) if x.index >= lead else (0, 0) for x in layers)


def _pooled(keys: Keys, hp: Hparams, layers: tuple[Layer, ...]) -> Widths:
    """glm5-next: key, gate and pooled key side by side."""
    head, full = keys.required("attention.indexer.key_length"), _full(keys, hp)
    rows = 3 if keys.uint("attention.indexer.kpool", 0) else 1
    return tuple(
        (rows * head, 0) if not x.nextn and x.kind is not AttentionKind.RECURRENT and full[x.index] else (0, 0)
        for x in layers
    )


def _block_pooled(keys: Keys, hp: Hparams, layers: tuple[Layer, ...]) -> Widths:
    """qwen4exp: key and pooled key side by side where the file gives a compress ratio."""
    head = keys.required("attention.indexer.key_length")
    rows = 2 if any(pool_ratios(keys, hp)) else 1
    return tuple((rows * head, 0) if not x.nextn and x.kind is not AttentionKind.RECURRENT else (0, 0) for x in layers)


def pool_ratios(keys: Keys, hp: Hparams) -> tuple[int, ...]:
    """Cells per pool that the indexer of each block scores, 0 for blocks without one (src/models/qwen4exp.cpp,
    glm5-next.cpp)."""
    none = (0,) * hp.n_layer_all
    if keys.arch == "glm5-next":
        pool = keys.uint("attention.indexer.kpool", 0)
        return tuple(pool * full for full in _full(keys, hp)) + none[hp.n_layer :]
    return keys.per_layer("attention.compress_ratios", hp.n_layer_all) or none if keys.arch == "qwen4exp" else none


def _compressed(keys: Keys, hp: Hparams, layers: tuple[Layer, ...]) -> Widths:
    """deepseek4: one entry per compressed entry of the blocks with ratio 4."""
    head = keys.required("attention.indexer.key_length")
    return tuple((head, 0) if x.compress_ratio == 4 else (0, 0) for x in layers)


_RULES: dict[str, Callable[[Keys, Hparams, tuple[Layer, ...]], Widths]] = {
    "deepseek32": _dsa,
    "glm-dsa": _dsa,
    "dots3note": _dsa,
    "hy_v4": _dsa_if_sparse,
    "minimax-m3": _msa,
    "glm5-next": _pooled,
    "qwen4exp": _block_pooled,
    "deepseek4": _compressed,
}
