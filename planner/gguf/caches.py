"""What each block keeps between tokens, exactly as llama.cpp b11434 allocates it.

``llama_model::create_memory`` in src/llama-model.cpp chooses the memory; the sizes come from src/llama-kv-cache.cpp,
src/llama-kv-cache-dsa.cpp, src/llama-kv-cache-msa.cpp, src/llama-kv-cache-dsv4.cpp, src/llama-memory-hybrid-idx.cpp
and src/llama-memory-recurrent.cpp.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.facts.model import AttentionKind, Layer
from planner.gguf.architectures import BOTH, NEXTN_CACHED, NO_CACHE, ONE_FUNCTION_PER_BLOCK, RECURRENT
from planner.gguf.attention import Sliding, lookup_state, recurrent_blocks, sliding, state_sizes
from planner.gguf.hyperparams import Hparams, Keys
from planner.gguf.indexers import indexer_widths, pool_ratios

_GEMMA3N_KV_LAYERS: Final = 20
"""``n_layer_kv_from_start``, src/models/gemma3n.cpp."""


def build_layers(keys: Keys, hp: Hparams) -> tuple[Layer, ...]:
    """One ``Layer`` per block.

    Raises:
        ModelFileError: a key that the architecture needs is missing or wrong.
    """
    windows, recurrent = sliding(keys, hp), recurrent_blocks(keys, hp)
    owners = _kv_owners(keys, hp)
    layers = tuple(
        _base(keys, hp, windows, il) if il < owners else _sharing(hp, windows, il) for il in range(hp.n_layer_all)
    )
    state = state_sizes(keys, hp) if any(recurrent) else (0, 0)
    layers = tuple(_recur(keys, layer, state) if recurrent[layer.index] else layer for layer in layers)
    if keys.arch == "deepseek4":
        layers = _compress(keys, hp, layers)
    blocks, history = lookup_state(keys, hp)
    layers = tuple(replace(x, state_r=x.state_r + history) if x.index in blocks else x for x in layers)
    layers = tuple(
        replace(x, compress_ratio=ratio) if ratio and x.kind is not AttentionKind.RECURRENT else x
        for x, ratio in zip(layers, pool_ratios(keys, hp), strict=True)
    )
    widths = indexer_widths(keys, hp, layers)
    return tuple(
        replace(x, indexer_k=k, indexer_v=v) if k or v else x for x, (k, v) in zip(layers, widths, strict=True)
    )


def _kv_owners(keys: Keys, hp: Hparams) -> int:
    """How many of the first blocks own a cache; later ones read theirs."""
    if keys.arch == "gemma3n":
        return _GEMMA3N_KV_LAYERS
    if keys.arch == "gemma4":
        return hp.n_layer_all - keys.uint("attention.shared_kv_layers", 0)
    return hp.n_layer_all


def _base(keys: Keys, hp: Hparams, windows: Sliding, il: int) -> Layer:
    """An attention block by ``n_embd_k_gqa`` and ``n_embd_v_gqa``, src/llama-hparams.cpp."""
    slides = windows.blocks[il]
    head_k = hp.head_k_swa if slides else hp.head_k
    head_v = hp.head_v_swa if slides else hp.head_v
    n_head_kv = hp.n_head_kv[il]
    cached = n_head_kv > 0 and not _feed_forward_only(keys, hp, il)
    kept = n_head_kv if cached and keys.arch not in NO_CACHE else 0
    return Layer(
        index=il,
        kind=_kind(hp, windows, slides) if cached else AttentionKind.NONE,
        n_head=hp.n_head[il],
        n_head_kv=n_head_kv,
        head_k=head_k,
        head_v=head_v,
        n_embd_k=kept * head_k,
        n_embd_v=0 if hp.mla else kept * head_v,
        window=windows.n_swa if slides else 0,
        n_ff=hp.n_ff[il],
        n_expert_used=hp.n_expert_used[il],
        nextn=il >= hp.n_layer,
        nextn_cached=il >= hp.n_layer and keys.arch in NEXTN_CACHED,
    )


def _feed_forward_only(keys: Keys, hp: Hparams, il: int) -> bool:
    return keys.arch in ONE_FUNCTION_PER_BLOCK and hp.n_ff[il] != 0


def _kind(hp: Hparams, windows: Sliding, slides: bool) -> AttentionKind:
    if slides:
        return AttentionKind.CHUNKED if windows.chunked else AttentionKind.SWA
    return AttentionKind.MLA if hp.mla else AttentionKind.FULL


def _sharing(hp: Hparams, windows: Sliding, il: int) -> Layer:
    slides = windows.blocks[il]
    return Layer(
        index=il,
        kind=AttentionKind.SHARED,
        n_head=hp.n_head[il],
        n_head_kv=hp.n_head_kv[il],
        head_k=hp.head_k_swa if slides else hp.head_k,
        head_v=hp.head_v_swa if slides else hp.head_v,
        n_embd_k=0,
        n_embd_v=0,
        window=windows.n_swa if slides else 0,
        n_ff=hp.n_ff[il],
        n_expert_used=hp.n_expert_used[il],
        nextn=il >= hp.n_layer,
    )


def _recur(keys: Keys, layer: Layer, state: tuple[int, int]) -> Layer:
    layer = replace(layer, state_r=state[0], state_s=state[1])
    if keys.arch in BOTH:
        return layer
    heads = (0, 0) if keys.arch in RECURRENT else (layer.n_head, layer.n_head_kv)
    return replace(
        layer,
        kind=AttentionKind.RECURRENT,
        n_head=heads[0],
        n_head_kv=heads[1],
        n_embd_k=0,
        n_embd_v=0,
        window=0,
    )


def _compress(keys: Keys, hp: Hparams, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """A sliding raw K cache in every block, and in most a compressed one with its f32 compressor state.

    src/llama-kv-cache-dsv4.cpp: ratio 4 keeps 2 tensors (values, scores) of 8 rows of 2 heads, and the same for
    its indexer; ratio 128 keeps 2 tensors of 128 rows of one head.
    """
    ratios = keys.array("attention.compress_ratios") or ()
    index_head = keys.required("attention.indexer.key_length")
    result = []
    for layer in layers:
        ratio = ratios[layer.index] if layer.index < len(ratios) else 0
        ratio = ratio if ratio in (4, 128) else 0
        trunk = not layer.nextn
        state = {4: 2 * 8 * 2 * layer.head_k, 128: 2 * 128 * layer.head_k}.get(ratio, 0) if trunk else 0
        result.append(
            replace(
                layer,
                kind=AttentionKind.COMPRESSED,
                n_embd_v=0,
                window=keys.required("attention.sliding_window"),
                compress_ratio=ratio,
                state_r=2 * 8 * 2 * index_head if ratio == 4 and trunk else 0,
                state_s=state,
            )
        )
    return tuple(result)
