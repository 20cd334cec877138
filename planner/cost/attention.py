"""The steps of attention over a cache, in the order llama.cpp adds them to its graph.

Mirrors ``build_qkv``, ``build_attn`` and ``build_attn_mha`` (src/llama-graph.cpp, b11434) and what model files
share (src/models/*.cpp).
"""

from __future__ import annotations

from collections.abc import Callable

from planner.cost.blocks import Block, Env, fresh, inplace, matrix, norm, part
from planner.cost.sparse import pooled_mask, sparse_mask, top_k
from planner.cost.tape import Node


def attend(
    env: Env, block: Block, q: Node, k: Node | None, v: Node | None, width_v: int,
    choose: Callable[[], Node] | None = None,
) -> Node:  # fmt: skip
    """Store K and V, then attention over the cache: heads x value width per token.

    CUDA's flash attention asks for f16 copies of quantised K and V behind its result
    (``ggml_cuda_flash_attn_ext_get_alloc_size``, ggml/src/ggml-cuda/fattn.cu, b11434).

    Args:
        choose: adds the steps of a mask that lets only chosen cells through.
    """
    layer, tape, given = block.layer, env.tape, env.inputs[block.layer.window]
    if env.rotated_k:
        q = fresh(env, q.size, tape.view(q), given.rotations[0])
        k = fresh(env, k.size, tape.view(k), given.rotations[0]) if k else None
    if env.rotated_v and v:
        v = fresh(env, v.size, tape.view(v), given.rotations[1])
    for stored, indices in ((k, given.k_indices), (v, given.v_indices)):
        if stored:
            tape.store(tape.view(stored), indices)
    cells, size, query = env.cells[layer.window], 4 * width_v * env.n, tape.view(q)
    if env.flash_attn:
        mask = choose() if choose else given.mask
        copies = 2 * cells * (layer.n_embd_k + layer.n_embd_v) if env.f16_copies else 0
        mixed = tape.op("attention", size + copies, query, mask, key=None if copies else (width_v, env.n))
    else:
        turned = () if v or layer.n_embd_v else (fresh(env, 2 * cells * width_v // layer.n_head),)
        cells //= env.n_stream
        scores = tape.op("attention scores", 4 * cells * env.n * layer.n_head, query, key=("kq", cells))
        mask = choose() if choose else given.mask
        scores = tape.op("attention scores", scores.size, scores, mask, key=("kq", cells), inplace=True)
        summed = fresh(env, size, scores, *turned)
        mixed = tape.op("attention", size, tape.view(summed), key=(width_v, env.n))
    if env.rotated_v and v:
        mixed = matrix(env, width_v, tape.view(mixed), given.rotations[1])
    return mixed


def grouped_query(env: Env, block: Block, x: Node) -> Node:
    """Plain attention: separate or fused Q, K, V, optional per-head norms, output gate."""
    layer = block.layer
    n_q, n_k, n_v = layer.n_head * layer.head_k, block.width("attn_k"), block.width("attn_v")
    gated = block.width("attn_q") == 2 * n_q
    v: Node | None
    k: Node | None
    if block.width("attn_qkv"):
        n_k, n_v = layer.n_head_kv * layer.head_k, layer.n_head_kv * layer.head_v
        fused = matrix(env, block.width("attn_qkv"), x)
        q, k, v = (part(env, fused, n) for n in (n_q, n_k, n_v))
        q, k = fresh(env, q.size, q, env.positions), fresh(env, k.size, k, env.positions)
        full = None
    else:
        full = matrix(env, block.width("attn_q"), x)
        q = part(env, full, n_q) if gated else env.tape.view(full)
        q = _head_norm(env, block, q, "attn_q_norm")
        v = matrix(env, n_v, x) if n_v else None
        k = _head_norm(env, block, env.tape.view(matrix(env, n_k, x)), "attn_k_norm") if n_k else None
    chosen = pooled_mask(env, block, x) if env.pool and "indexer.q_proj" in block.shapes else None
    mixed = attend(env, block, q, k, v, layer.n_head * layer.head_v, chosen)
    if gated and full is not None:
        gate = fresh(env, 4 * n_q * env.n, part(env, full, n_q))
        mixed = inplace(env, mixed, inplace(env, gate))
    elif block.width("attn_gate"):
        mixed = inplace(env, mixed, inplace(env, matrix(env, block.width("attn_gate"), x)))
    return matrix(env, env.n_embd, mixed)


def _head_norm(env: Env, block: Block, node: Node, name: str) -> Node:
    """Optional norm, then rope, in place where the layout allows."""
    if name in block.shapes:
        node = norm(env, node)
    return inplace(env, node, env.positions)


def latent(env: Env, block: Block, x: Node) -> Node:
    """Multi-head latent attention, absorbed: one latent K, decompressed after attention.

    ``src/models/deepseek2.cpp``; with a lightning indexer ``glm-dsa.cpp`` and ``deepseek32.cpp`` (b11434).
    """
    layer = block.layer
    rank = block.shapes["attn_kv_a_norm"][0]
    n_head, rope = layer.n_head, layer.n_embd_k - rank
    low = norm(env, matrix(env, block.width("attn_q_a"), x)) if block.width("attn_q_a") else x
    sparse = layer.indexer_k > 0 and "indexer.attn_q_b" in block.shapes
    if sparse:
        key = fresh(env, 4 * layer.indexer_k * env.n, norm(env, matrix(env, layer.indexer_k, x)), env.positions)
        env.tape.store(env.tape.view(fresh(env, key.size, key)), env.inputs[layer.window].k_indices)
    q = matrix(env, block.width("attn_q_b") or block.width("attn_q"), low)
    nope = q.size // (4 * env.n) - n_head * rope
    absorbed = fresh(env, 4 * n_head * rank * env.n, part(env, q, nope))
    q_rope = fresh(env, 4 * n_head * rope * env.n, part(env, q, n_head * rope), env.positions)
    query = fresh(env, 4 * n_head * (rank + rope) * env.n, env.tape.view(absorbed), q_rope)
    compressed = matrix(env, block.width("attn_kv_a_mqa"), x)
    value = inplace(env, fresh(env, 4 * rank * env.n, part(env, compressed, rank)))
    k_rope = fresh(env, 4 * rope * env.n, part(env, compressed, rope), env.positions)
    joined = fresh(env, 4 * (rank + rope) * env.n, value, k_rope)

    def choose() -> Node:
        env.top_k = top_k(env, block, low, x) if sparse else env.top_k
        return sparse_mask(env, env.inputs[layer.window].mask)

    mixed = attend(env, block, query, joined, None, n_head * rank, choose if sparse or env.top_k else None)
    n_v = block.shapes["attn_v_b"][1] * n_head
    mixed = fresh(env, 4 * n_v * env.n, env.tape.view(mixed))
    mixed = fresh(env, 4 * n_v * env.n, env.tape.view(mixed))
    return matrix(env, env.n_embd, mixed)
