"""The steps of blocks that carry a state instead of a cache (src/models/*.cpp, b11434)."""

from __future__ import annotations

from planner.cost.blocks import Block, Env, fresh, inplace, matrix, norm, part
from planner.cost.tape import Node


def delta_net(env: Env, block: Block, x: Node) -> Node:
    """Gated delta net: convolution over Q, K, V, then the fused state update (src/models/delta-net-base.cpp)."""
    layer, tape = block.layer, env.tape
    d_inner = block.shapes["ssm_out"][0]
    channels = block.shapes["ssm_conv1d"][1]
    n_heads = block.shapes["ssm_dt.bias"][0]
    state_r, state_s = 4 * layer.state_r * env.n_seq, 4 * layer.state_s * env.n_seq
    conv_state = fresh(env, state_r)
    mixed = matrix(env, channels, x)
    conv_in = fresh(env, 4 * channels * env.n + state_r, tape.view(conv_state), tape.view(mixed))
    tape.store(tape.view(conv_in))
    state = fresh(env, state_s)
    conv = inplace(env, fresh(env, 4 * channels * env.n, conv_in))
    q_k = (channels - d_inner) // 2
    q = inplace(env, inplace(env, fresh(env, 4 * q_k * env.n, part(env, conv, q_k))))
    k = inplace(env, inplace(env, fresh(env, 4 * q_k * env.n, part(env, conv, q_k))))
    v = part(env, conv, d_inner)
    alpha = inplace(env, inplace(env, inplace(env, matrix(env, n_heads, x))))
    beta = inplace(env, matrix(env, n_heads, x))
    result = fresh(env, 4 * d_inner * env.n + state_s, q, k, v, alpha, beta, tape.view(state))
    tape.store(tape.view(result))
    out = norm(env, fresh(env, 4 * d_inner * env.n, part(env, result, d_inner)))
    gate = inplace(env, matrix(env, d_inner, x))
    return matrix(env, env.n_embd, inplace(env, out, gate))


def state_space(env: Env, block: Block, x: Node) -> Node:
    """Mamba-2: one projection in, convolution, scan, gate (src/models/mamba-base.cpp, b11434)."""
    layer, tape = block.layer, env.tape
    d_inner, width = block.shapes["ssm_out"][0], 4 * block.shapes["ssm_out"][0] * env.n
    channels = block.shapes["ssm_conv1d"][1]
    state_r, state_s = 4 * layer.state_r * env.n_seq, 4 * layer.state_s * env.n_seq
    conv_state = fresh(env, state_r)
    mixed = matrix(env, block.width("ssm_in"), x)
    conv_in = fresh(env, 4 * channels * env.n + state_r, tape.view(conv_state), part(env, mixed, channels))
    tape.store(tape.view(conv_in))
    conv = inplace(env, inplace(env, fresh(env, 4 * channels * env.n, conv_in)))
    step = inplace(env, fresh(env, 4 * block.shapes["ssm_a"][-1] * env.n, part(env, mixed, 1)))
    scan = fresh(env, width + state_s, part(env, conv, d_inner), step)
    tape.store(tape.view(scan))
    if env.n_seq > 1:  # states beyond the first are gathered to be copied back
        tape.store(tape.view(fresh(env, state_s // env.n_seq * (env.n_seq - 1))))
    gate = fresh(env, width, part(env, mixed, d_inner))
    skip = fresh(env, width, part(env, conv, d_inner))
    out = fresh(env, width, gate, inplace(env, skip, part(env, scan, d_inner)))
    if "ssm_norm" in block.shapes:
        out = norm(env, tape.view(out, key=out.key))
    return matrix(env, env.n_embd, tape.view(out))


def short_conv(env: Env, block: Block, x: Node) -> Node:
    """LFM2's gated short convolution (src/models/lfm2.cpp, b11434)."""
    tape, width = env.tape, 4 * env.n_embd * env.n
    state = 4 * block.layer.state_r * env.n_seq
    projected = matrix(env, 3 * env.n_embd, x)
    gated = fresh(env, width, part(env, projected, env.n_embd), part(env, projected, env.n_embd))
    held = fresh(env, state)
    joined = fresh(env, width + state, tape.view(held), tape.view(gated))
    tape.store(tape.view(joined))
    mixed = fresh(env, width, joined)
    out = fresh(env, width, part(env, projected, env.n_embd), mixed)
    return matrix(env, env.n_embd, out)


def lightning(env: Env, block: Block, x: Node) -> Node:
    """Linear attention with decays between all pairs of tokens of a batch (src/models/minimax-01.cpp, b11434)."""
    layer, tape = block.layer, env.tape
    width = layer.n_head * layer.head_v
    pairs = 4 * (env.n // env.n_seq) ** 2 * layer.n_head * env.n_seq
    env.decay = env.decay or tape.foreign("token decay", pairs)
    mixed = inplace(env, matrix(env, 3 * width, x))
    state = fresh(env, 4 * layer.state_s * env.n_seq)
    decay = inplace(env, fresh(env, pairs, env.decay, label="token decay"))
    across = fresh(env, 4 * width * env.n, tape.view(state), fresh(env, 4 * width * env.n, part(env, mixed, width)))
    scores = fresh(env, pairs, part(env, mixed, width), label="attention scores")
    scores = inplace(env, scores, decay)
    values = fresh(env, 4 * width * env.n, part(env, mixed, width))
    within = fresh(env, 4 * width * env.n, values, scores)
    out = inplace(env, across, within)
    kept = fresh(env, 4 * width * env.n, fresh(env, 4 * width * env.n, part(env, mixed, width)))
    tape.store(fresh(env, state.size, tape.view(state)), fresh(env, state.size, kept, values))
    out = norm(env, fresh(env, 4 * width * env.n, tape.view(out)))
    gate = inplace(env, matrix(env, width, x))
    return matrix(env, env.n_embd, inplace(env, gate, out))
