"""The steps of blocks that carry a state instead of a cache (src/models/*.cpp, b11434)."""

from __future__ import annotations

from planner.cost.blocks import Block
from planner.cost.draw import Env, fresh, inplace, matrix, norm, part
from planner.cost.tape import Node


def _stored(env: Env, n_elements: int) -> Node:
    """A state of all sequences and rollback copies, f32, where the cache is."""
    return env.cache("state copy", 4 * n_elements * env.n_seq * env.n_copies)


def rows_of(env: Env, n_elements: int) -> tuple[Node, Node]:
    """A state in its cache, and its rows: clear one, gather all, put back those of no sequence (``build_rs``,
    src/llama-graph.cpp, b11434). With a cache on the host all of that stays there."""
    tape, state = env.tape, _stored(env, n_elements)
    tape.write(tape.view(state))
    rows = fresh(env, 4 * n_elements * env.n_seq, state, _sequences(env))
    out = tape.view(rows)
    tape.write(tape.view(state), tape.view(rows))
    return state, out


def _sequences(env: Env) -> Node:
    """Which state each sequence takes."""
    return env.given("states", 4 * env.n_seq)


def rows_first(env: Env, block: Block) -> tuple[Node, Node] | None:
    """The convolution's state, where a block gathers it before it norms its input."""
    if "shortconv.in_proj" not in block.shapes and ("ssm_in" not in block.shapes or "ssm_ba" in block.shapes):
        return None
    start = len(env.tape.steps)
    found = rows_of(env, block.layer.state_r)
    env.tape.advance(start)
    return found


def convolved(env: Env, before: tuple[Node, Node], mixed: Node, channels: int) -> Node:
    """The batch behind the rows before it, whose last ones become the new state.

    With parallel residual streams these are made contiguous first (src/models/qwen4exp.cpp, b11434).
    """
    tape, (state, rows) = env.tape, before
    joined = fresh(env, 4 * channels * env.n + rows.size, rows, mixed)
    last = fresh(env, rows.size, tape.view(joined)) if env.hyper > 1 else tape.view(joined)
    tape.write(tape.view(state), last)
    tape.expand()
    return joined


def delta_net(env: Env, block: Block, x: Node) -> Node:
    """Gated delta net: convolution over Q, K, V, then the fused state update (src/models/delta-net-base.cpp)."""
    layer, tape = block.layer, env.tape
    d_inner = block.shapes["ssm_out"][0]
    channels = block.shapes["ssm_conv1d"][1]
    state_s, width = 4 * layer.state_s * env.n_seq, 4 * d_inner * env.n
    before = rows_of(env, (block.shapes["ssm_conv1d"][0] - 1) * channels)
    mixed, gate = _queries_and_gate(env, block, x, channels)
    conv_in = convolved(env, before, tape.view(mixed), channels)
    kept, state = rows_of(env, layer.state_s)
    conv = inplace(env, fresh(env, 4 * channels * env.n, conv_in, w="ssm_conv1d"))
    q_k = (channels - d_inner) // 2
    heads = []
    for _ in range(2):
        head = inplace(env, fresh(env, 4 * q_k * env.n, part(env, conv, q_k)))
        repeated = "ssm_ba" in block.shapes and q_k != d_inner
        heads.append(tape.view(fresh(env, width, tape.view(head))) if repeated else head)
    v = part(env, conv, d_inner)
    decay, beta = _decays(env, block, x)
    result = fresh(env, width + state_s, *heads, v, tape.view(decay), tape.view(beta), state)
    out, new_state = (tape.view(result, size=size, span=size) for size in (width, state_s))
    tape.write(tape.view(kept), new_state)
    tape.expand()
    out = norm(env, out, "ssm_norm", block.shapes["ssm_dt.bias"][0])
    if gate is None:
        gate = matrix(env, d_inner, x, w="attn_gate")
    mixed = tape.view(inplace(env, out, inplace(env, tape.view(gate))))
    return tape.view(matrix(env, env.n_embd, mixed, w="ssm_out"))


def _queries_and_gate(env: Env, block: Block, x: Node, channels: int) -> tuple[Node, Node | None]:
    """Q, K, V of the convolution; and the output gate, where one multiply makes both (``build_qkvz``)."""
    if "attn_qkv" in block.shapes:
        return matrix(env, channels, x, w="attn_qkv"), None
    d_inner = block.shapes["ssm_out"][0]
    all_parts = matrix(env, block.width("ssm_in"), x, w="ssm_in")
    q_k = (channels - d_inner) // 2
    q, k = (fresh(env, 4 * q_k * env.n, part(env, all_parts, q_k)) for _ in range(2))
    keys = fresh(env, 8 * q_k * env.n, q, k)
    v = fresh(env, 4 * d_inner * env.n, part(env, all_parts, d_inner))
    return fresh(env, 4 * channels * env.n, keys, v), fresh(env, 4 * d_inner * env.n, part(env, all_parts, d_inner))


def _decays(env: Env, block: Block, x: Node) -> tuple[Node, Node]:
    """Decay and write strength per head and token."""
    n_heads = block.shapes["ssm_dt.bias"][0]
    size = 4 * n_heads * env.n
    if "ssm_ba" in block.shapes:
        both = matrix(env, 2 * n_heads, x, w="ssm_ba")
        alpha = inplace(env, fresh(env, size, part(env, both, n_heads)), w="ssm_dt.bias")
        beta = fresh(env, size, part(env, both, n_heads))
        return inplace(env, inplace(env, alpha), w="ssm_a"), inplace(env, beta)
    alpha = fresh(env, size, env.tape.view(matrix(env, n_heads, x, w="ssm_alpha")), w="ssm_dt.bias")
    decay = inplace(env, inplace(env, alpha), w="ssm_a")
    return decay, fresh(env, size, env.tape.view(matrix(env, n_heads, x, w="ssm_beta")))


def state_space(env: Env, block: Block, x: Node, before: tuple[Node, Node]) -> Node:
    """Mamba-2: one projection in, convolution, scan, gate (src/models/mamba-base.cpp, b11434)."""
    layer, tape = block.layer, env.tape
    d_inner, width = block.shapes["ssm_out"][0], 4 * block.shapes["ssm_out"][0] * env.n
    channels = block.shapes["ssm_conv1d"][1]
    state_s = 4 * layer.state_s * env.n_seq
    mixed = matrix(env, block.width("ssm_in"), x, w="ssm_in")
    conv_in = convolved(env, before, part(env, mixed, channels), channels)
    kept = _stored(env, layer.state_s)
    tape.write(tape.view(kept))
    conv = inplace(env, fresh(env, 4 * channels * env.n, conv_in, w="ssm_conv1d"), w="ssm_conv1d.bias")
    conv = inplace(env, conv)
    x_part = part(env, conv, d_inner)
    step = inplace(env, fresh(env, 4 * block.shapes["ssm_a"][-1] * env.n, part(env, mixed, 1)), w="ssm_dt.bias")
    inputs = (
        kept,
        x_part,
        step,
        part(env, conv, 1),
        part(env, conv, 1),
        env.given("states of the batch", 4 * env.n_seq),
    )
    scan = fresh(env, width + state_s, *inputs, w="ssm_a", batch=1)  # a result of one row is never offloaded
    beyond = env.given("states beyond the batch", 4 * (env.n_seq - 1))
    others = fresh(env, 4 * layer.state_s * (env.n_seq - 1), _stored(env, layer.state_s), beyond)
    tape.write(tape.view(kept), tape.view(others))
    tape.write(tape.view(kept), tape.view(scan, size=state_s, span=state_s))
    tape.expand()
    gate = fresh(env, width, part(env, mixed, d_inner))
    y = tape.view(scan, size=width, span=width)
    out = fresh(env, width, gate, inplace(env, fresh(env, width, x_part, w="ssm_d"), y))
    if "ssm_norm" in block.shapes:
        out = norm(env, tape.view(out), "ssm_norm")
    return matrix(env, env.n_embd, tape.view(out), w="ssm_out")


def short_conv(env: Env, block: Block, x: Node, before: tuple[Node, Node]) -> Node:
    """LFM2's gated short convolution (src/models/lfm2.cpp, b11434)."""
    tape, width = env.tape, 4 * env.n_embd * env.n
    projected = matrix(env, 3 * env.n_embd, tape.view(x), w="shortconv.in_proj")
    gated = fresh(env, width, part(env, projected, env.n_embd), part(env, projected, env.n_embd))
    joined = convolved(env, before, tape.view(gated), env.n_embd)
    mixed = fresh(env, width, joined, w="shortconv.conv")
    out = fresh(env, width, part(env, projected, env.n_embd), mixed)
    return tape.view(matrix(env, env.n_embd, out, w="shortconv.out_proj"))


def lightning(env: Env, block: Block, x: Node) -> Node:
    """Linear attention with decays between all pairs of tokens of a batch (src/models/minimax-01.cpp, b11434)."""
    layer, tape = block.layer, env.tape
    width = layer.n_head * layer.head_v
    pairs = 4 * (env.n // env.n_seq) ** 2 * layer.n_head * env.n_seq
    env.decay = env.decay or tape.leaf("token decay", pairs)
    mixed = inplace(env, matrix(env, 3 * width, x, w="attn_qkv"))
    kept = _stored(env, layer.state_s)
    state = fresh(env, 4 * layer.state_s * env.n_seq, kept)
    decay = inplace(env, fresh(env, pairs, env.decay, label="token decay"))
    across = fresh(env, 4 * width * env.n, tape.view(state), fresh(env, 4 * width * env.n, part(env, mixed, width)))
    scores = fresh(env, pairs, part(env, mixed, width), label="attention scores")
    scores = inplace(env, scores, decay)
    values = fresh(env, 4 * width * env.n, part(env, mixed, width))
    within = fresh(env, 4 * width * env.n, values, scores)
    out = inplace(env, across, within)
    moved = fresh(env, 4 * width * env.n, fresh(env, 4 * width * env.n, part(env, mixed, width)))
    updated = inplace(env, fresh(env, state.size, tape.view(state)), fresh(env, state.size, moved, values))
    tape.write(tape.view(kept), updated)
    out = norm(env, fresh(env, 4 * width * env.n, tape.view(out)), "attn_norm_2")
    gate = inplace(env, matrix(env, width, x, w="attn_gate"))
    return matrix(env, env.n_embd, inplace(env, gate, out), w="attn_output")
