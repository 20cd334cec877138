"""The steps of attention over a cache, in the order llama.cpp adds them to its graph.

Mirrors ``build_qkv``, ``build_attn`` and ``build_attn_mha`` (src/llama-graph.cpp, b11434) and what model files
share (src/models/*.cpp).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from planner.cost.blocked import group_mask, index_keys, is_blocked
from planner.cost.blocks import Block
from planner.cost.draw import Env, fresh, inplace, matrix, norm, part
from planner.cost.kv_types import row_bytes
from planner.cost.pooled import pooled_mask
from planner.cost.sparse import sparse_mask, top_k
from planner.cost.tape import HOST, Node

_READ_AS_F16: Final = ("f16", "f32")
"""Caches that flash attention finds as f16."""


def attend(
    env: Env, block: Block, q: Node, k: Node | None, v: Node | None, width_v: int,
    choose: Callable[[], Node] | None = None,
) -> Node:  # fmt: skip
    """Store K and V, then attention over the cache: heads x value width per token.

    Args:
        choose: adds the steps of a mask that lets only chosen cells through.
    """
    tape, given = env.tape, env.inputs[block.layer.window]
    if not env.traits.cached and k and v:
        return _within_batch(env, block, (q, k, v), width_v)
    keys, values = _caches(env, block)
    for stored, indices, cache in ((k, given.k_indices, keys), (v, given.v_indices, values)):
        if stored:
            tape.write(tape.view(cache), tape.view(stored), indices)
    if env.flash_attn:
        mask = choose() if choose else given.mask
        keys, values = _cast(env, keys, env.k_type), _cast(env, values, _type_v(env, block))
        sources, extra = (tape.view(q), keys, values, mask), _f16_copies(env, block)
        mixed = tape.view(tape.op("attention", 4 * width_v * env.n, *sources, extra=extra))
    else:
        mixed = _scored(env, block, q, (keys, values), width_v, choose)
    tape.expand()
    return rotated(env, block, mixed, 1) if v else mixed


def _within_batch(env: Env, block: Block, parts: tuple[Node, Node, Node], width_v: int) -> Node:
    """Attention of a batch over itself, without a cache."""
    tape, n, (q, k, v) = env.tape, env.n, parts
    tape.expand()
    mask, key = env.inputs[block.layer.window].mask, ("kq", n)
    if env.flash_attn:
        keys, values = (fresh(env, node.size // 2, tape.view(node)) for node in (k, v))
        mixed = tape.view(tape.op("attention", 4 * width_v * n, tape.view(q), keys, values, mask))
    else:
        turned = fresh(env, v.size, tape.view(v))
        scores = tape.op("attention scores", 4 * n * n * block.layer.n_head, tape.view(k), tape.view(q), key=key)
        scores = tape.op("attention scores", scores.size, scores, mask, key=key, inplace=True)
        home = HOST if env.end_on_host else None
        summed = fresh(env, 4 * width_v * n, turned, scores)
        mixed = tape.op("attention", summed.size, tape.view(summed), key=(summed.size,), home=home)
    tape.expand()
    return mixed


def rotated(env: Env, block: Block, node: Node, which: int) -> Node:
    """Q or K (0), V or what attention makes of it (1), rotated for a quantised cache if heads are whole blocks of 64
    (``llama_mul_mat_hadamard``, src/llama-impl.h, b11434)."""
    quantised, head = ((env.rotated_k, block.layer.head_k), (env.rotated_v, block.layer.head_v))[which]
    if not quantised or head % 64:
        return node
    rotation = env.inputs[block.layer.window].rotations[which]
    return env.tape.view(fresh(env, node.size, rotation, env.tape.view(node)))


def latent_cache(block: Block) -> bool:
    """Whether a block's cache holds one latent K that is V, too (such caches are not rotated)."""
    return block.layer.n_embd_k > 0 and not block.layer.n_embd_v


def _caches(env: Env, block: Block) -> tuple[Node, Node]:
    """K and V of a block as attention reads them; a latent V is a view of K of nearly its size."""
    layer, cells = block.layer, env.cells[block.layer.window]
    n_k = layer.n_embd_k or layer.n_head_kv * layer.head_k
    n_v = layer.n_embd_v or layer.n_head_kv * layer.head_v
    keys = env.cache("K copy", cells * row_bytes(env.k_type, n_k), env.k_type, layer.head_k)
    if latent_cache(block):
        return keys, env.cache("V copy", keys.size, env.k_type, layer.head_v)
    return keys, env.cache("V copy", cells * row_bytes(env.v_type, n_v), env.v_type, layer.head_v)


def _type_v(env: Env, block: Block) -> str:
    return env.k_type if latent_cache(block) else env.v_type


def _cast(env: Env, cache: Node, kind: str) -> Node:
    """Flash attention reads no f32: such a cache is copied to f16 (``build_attn_mha``)."""
    return fresh(env, cache.size // 2, env.tape.view(cache)) if kind == "f32" else cache


def _f16_copies(env: Env, block: Block) -> int:
    """What CUDA's flash attention asks for behind its result: f16 copies of a quantised K and V.

    A latent V shares K's copy unless both came from the host
    (``ggml_cuda_flash_attn_ext_get_f16_extra_data``, ggml/src/ggml-cuda/fattn-common.cuh, b11434).
    """
    layer, cells = block.layer, env.cells[block.layer.window]
    n_k = layer.n_embd_k or layer.n_head_kv * layer.head_k
    n_v = layer.n_embd_v or layer.n_head_kv * layer.head_v
    if latent_cache(block):
        n_v = n_k if env.place.cache == HOST else 0
    needed = n_k * (env.k_type not in _READ_AS_F16) + n_v * (env.v_type not in _READ_AS_F16)
    return 2 * cells * needed


def _scored(
    env: Env, block: Block, q: Node, caches: tuple[Node, Node], width_v: int, choose: Callable[[], Node] | None
) -> Node:
    """Attention without flash attention: one f32 score per head, cell and token."""
    layer, tape = block.layer, env.tape
    cells = env.cells[layer.window] // env.n_stream
    keys, values = caches
    if latent_cache(block):
        values = fresh(env, 2 * env.cells[layer.window] * width_v // layer.n_head, values)
    scores = tape.op("attention scores", 4 * cells * env.n * layer.n_head, keys, tape.view(q), key=("kq", cells))
    mask = choose() if choose else env.inputs[layer.window].mask
    scores = tape.op("attention scores", scores.size, scores, mask, key=("kq", cells), inplace=True)
    summed = fresh(env, 4 * width_v * env.n, values, scores)
    if "attn_v_b" in block.shapes:
        summed = fresh(env, 4 * block.shapes["attn_v_b"][1] * layer.n_head * env.n, summed, w="attn_v_b")
    home = HOST if env.end_on_host else None
    return tape.op("attention", summed.size, tape.view(summed), key=(summed.size,), home=home)


def grouped_query(env: Env, block: Block, x: Node) -> Node:
    """Plain attention: separate or fused Q, K, V, optional per-head norms, output gate."""
    layer = block.layer
    n_q = layer.n_head * layer.head_k
    gated = block.width("attn_q") == 2 * n_q
    chosen = pooled_mask(env, block, x) if block.pool else None
    groups = group_mask(env, block, x, index_keys(env, block, x)) if is_blocked(env, block) else None
    v: Node | None
    k: Node | None
    if block.width("attn_qkv"):
        n_k, n_v = layer.n_head_kv * layer.head_k, layer.n_head_kv * layer.head_v
        fused = _projected(env, block, x, "attn_qkv")
        q, k, v = (part(env, fused, n) for n in (n_q, n_k, n_v))
        q, k = (fresh(env, node.size, node, env.positions) if env.traits.rope else node for node in (q, k))
        q, v, k = (rotated(env, block, node, which) for node, which in ((q, 0), (v, 1), (k, 0)))
        full = None
    else:
        full = _projected(env, block, x, "attn_q")
        q = part(env, full, n_q) if gated else env.tape.view(full)
        q = rotated(env, block, _head_norm(env, block, q, "attn_q_norm", layer.n_head), 0)
        k, v = _key_and_value(env, block, x)
    if groups and k and v:
        mixed = _by_groups(env, block, (q, k, v), groups)
    else:
        mixed = attend(env, block, q, k, v, layer.n_head * layer.head_v, chosen)
    gate: Node | None = None
    if gated and full is not None:
        gate = fresh(env, 4 * n_q * env.n, part(env, full, n_q))
    elif block.width("attn_gate"):
        gate = fresh(env, 4 * block.width("attn_gate") * env.n, x, w="attn_gate")
    if gate:
        gate = inplace(env, gate)
        mixed = env.tape.op(mixed.label, gate.size, mixed, gate, key=gate.key, inplace=True)
    return _biased(env, matrix(env, env.n_embd, mixed, w="attn_output"), "attn_output.bias")


def _key_and_value(env: Env, block: Block, x: Node) -> tuple[Node | None, Node | None]:
    """K and V as they are stored, V first; without a projection of its own V is K, normed (src/models/gemma4.cpp,
    b11434). A block that reads another one's cache has neither."""
    layer, n_k, n_v = block.layer, block.width("attn_k"), block.width("attn_v")
    both: Node | None = None
    v = env.tape.view(_projected(env, block, x, "attn_v")) if n_v else None
    if n_k and not n_v and layer.n_embd_v:
        both = _projected(env, block, x, "attn_k")
        v = fresh(env, both.size, env.tape.view(both))
    v = rotated(env, block, v, 1) if v else None
    if not n_k:
        return None, v
    k = env.tape.view(both or _projected(env, block, x, "attn_k"))
    return rotated(env, block, _head_norm(env, block, k, "attn_k_norm", layer.n_head_kv), 0), v


def _by_groups(env: Env, block: Block, parts: tuple[Node, Node, Node], mask: Callable[[], Node]) -> Node:
    """Flash attention of every stream with a mask for each group of heads (``build_attn_msa_fa``,
    src/models/minimax-m3.cpp, b11434)."""
    tape, given, (q, k, v) = env.tape, env.inputs[block.layer.window], parts
    keys, values = _caches(env, block)
    for stored, indices, cache in ((k, given.k_indices, keys), (v, given.v_indices, values)):
        tape.write(tape.view(cache), tape.view(stored), indices)
    size, n_stream = 4 * block.layer.n_head * block.layer.head_v * env.n, env.n_stream
    out: Node | None = None
    for stream in range(n_stream):
        sources = (tape.view(q), tape.view(keys), tape.view(values), mask())
        extra = _f16_copies(env, block) // n_stream
        mixed = tape.op("attention", size // n_stream, *sources, extra=extra)
        mixed = fresh(env, mixed.size, tape.view(mixed))
        out = fresh(env, size // n_stream * (stream + 1), out, mixed) if out else mixed
    assert out is not None
    return rotated(env, block, tape.view(out), 1)


def _projected(env: Env, block: Block, x: Node, name: str) -> Node:
    return _biased(env, matrix(env, block.width(name), x, w=name), f"{name}.bias")


def _biased(env: Env, node: Node, name: str) -> Node:
    return inplace(env, node, w=name) if name in env.block.sizes else node


def _head_norm(env: Env, block: Block, node: Node, name: str, rows: int) -> Node:
    """Optional norm, then rope, in place where the layout allows."""
    if name in block.shapes:
        node = norm(env, node, name, rows)
    return inplace(env, node, env.positions) if env.traits.rope else node


def latent(env: Env, block: Block, x: Node) -> Node:
    """Multi-head latent attention, absorbed: one latent K, decompressed after attention.

    ``src/models/deepseek2.cpp``; with a lightning indexer ``glm-dsa.cpp`` and ``deepseek32.cpp`` (b11434).
    """
    layer, tape = block.layer, env.tape
    rank = block.shapes["attn_kv_a_norm"][0]
    n_head, rope = layer.n_head, layer.n_embd_k - rank
    low = x
    if block.width("attn_q_a"):
        low = norm(env, matrix(env, block.width("attn_q_a"), x, w="attn_q_a"), "attn_q_a_norm")
    sparse = layer.indexer_k > 0 and "indexer.attn_q_b" in block.shapes
    if sparse:
        row = norm(env, matrix(env, layer.indexer_k, x, w="indexer.attn_k"), "indexer.k_norm")
        key = fresh(env, 4 * layer.indexer_k * env.n, row, env.positions)
        cache = env.cache("indexer K copy", env.cells[layer.window] * row_bytes(env.k_type, layer.indexer_k))
        stored = tape.view(fresh(env, key.size, key) if env.traits.turned_indexer else key)
        tape.write(tape.view(cache), stored, env.inputs[layer.window].k_indices)
    name = "attn_q_b" if block.width("attn_q_b") else "attn_q"
    q = matrix(env, block.width(name), low, w=name)
    nope = q.size // (4 * env.n) - n_head * rope
    absorbed = fresh(env, 4 * n_head * rank * env.n, part(env, q, nope), w="attn_k_b")
    q_rope = _turned(env, part(env, q, n_head * rope))
    query = fresh(env, 4 * n_head * (rank + rope) * env.n, tape.view(absorbed), q_rope)
    compressed = matrix(env, block.width("attn_kv_a_mqa"), x, w="attn_kv_a_mqa")
    first = fresh(env, 4 * rank * env.n, part(env, compressed, rank))
    value = inplace(env, first, w="attn_kv_a_norm")
    k_rope = _turned(env, part(env, compressed, rope))
    joined = fresh(env, 4 * (rank + rope) * env.n, value, k_rope)

    def choose() -> Node:
        env.top_k = top_k(env, block, low, x) if sparse else env.top_k
        return sparse_mask(env, env.inputs[layer.window].mask)

    mixed = attend(env, block, query, joined, None, n_head * rank, choose if sparse or env.top_k else None)
    if env.flash_attn:
        n_v = block.shapes["attn_v_b"][1] * n_head
        mixed = fresh(env, 4 * n_v * env.n, tape.view(mixed), w="attn_v_b")
        mixed = fresh(env, 4 * n_v * env.n, tape.view(mixed))
    return matrix(env, env.n_embd, _gated(env, block, mixed, x), w="attn_output")


def _turned(env: Env, node: Node) -> Node:
    """A part rotated by position, where the model does that."""
    return fresh(env, node.size, node, env.positions) if env.traits.rope else node


def _gated(env: Env, block: Block, mixed: Node, x: Node) -> Node:
    """Attention times a sigmoid of the input: one gate per element, or per head and then made contiguous
    (src/models/kimi-k3.cpp, bailingmoe3.cpp, b11434)."""
    width = block.width("attn_gate")
    if not width:
        return mixed
    gate = inplace(env, matrix(env, width, x, w="attn_gate"))
    gated = env.tape.op(mixed.label, mixed.size, mixed, gate, key=mixed.key, inplace=True)
    return gated if gate.size == mixed.size else fresh(env, mixed.size, gated)
