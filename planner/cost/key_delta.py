"""Delta attention with a decay per key channel: convolutions over Q, K and V, then one fused state update.

Mirrors the recurrent blocks of src/models/kimi-linear.cpp, kimi-k3.cpp, bailingmoe3.cpp and glm5-next.cpp (b11434).
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.cost.blocks import Block
from planner.cost.draw import Env, fresh, inplace, matrix, norm, part
from planner.cost.recurrent import rows_of
from planner.cost.tape import Node


def key_delta(env: Env, block: Block, x: Node) -> Node:
    """All steps from the norm of the input to the output projection."""
    tape, layer = env.tape, block.layer
    tape.expand()
    width = block.shapes["ssm_conv1d_q"][-1]
    size, state_size = 4 * width * env.n, 4 * layer.state_s * env.n_seq
    n_heads = block.width("ssm_beta")
    before = rows_of(env, layer.state_r)
    joined = [_joined(env, before, row) for row in _rows(env, block, x, width)]
    kept, state = rows_of(env, layer.state_s)
    convolved = [
        inplace(env, fresh(env, size, row, w=f"ssm_conv1d_{name}")) for name, row in zip("qkv", joined, strict=True)
    ]
    q, k = (fresh(env, size, row) for row in convolved[:2])
    decay = inplace(env, _low_rank(env, block, x, "ssm_f", width), w="ssm_dt.bias")
    decay = inplace(env, inplace(env, inplace(env, decay, w="ssm_a")))
    beta = inplace(env, matrix(env, n_heads, x, w="ssm_beta"))
    parts = (q, k, convolved[2], tape.view(decay), tape.view(beta), state)
    result = fresh(env, size + state_size, *parts)
    tape.write(tape.view(kept), tape.view(result, size=state_size, span=state_size))
    tape.expand()
    out = norm(env, fresh(env, size, tape.view(result, size=size, span=size)), "ssm_norm", n_heads)
    gate = inplace(env, _low_rank(env, block, x, "ssm_g", width))
    gated = tape.op("activations", size, out, gate, key=out.key, inplace=True)
    return matrix(env, env.n_embd, fresh(env, size, gated), w="attn_output")


def _rows(env: Env, block: Block, x: Node, width: int) -> Iterator[Node]:
    """Q, K and V, projected one by one or at once."""
    if not block.width("attn_qkv"):
        yield from (matrix(env, width, x, w=f"attn_{name}") for name in "qkv")
        return
    fused = matrix(env, 3 * width, x, w="attn_qkv")
    yield from (fresh(env, 4 * width * env.n, part(env, fused, width)) for _ in range(3))


def _joined(env: Env, before: tuple[Node, Node], row: Node) -> Node:
    """The batch behind its share of the rows before it, whose last ones become the new state."""
    tape, (state, rows) = env.tape, before
    joined = fresh(env, row.size + rows.size // 3, rows, env.tape.view(row))
    tape.write(tape.view(state), tape.view(joined))
    tape.expand()
    return joined


def _low_rank(env: Env, block: Block, x: Node, name: str, width: int) -> Node:
    """A projection through a narrow row (``_a``, ``_b``), or at once."""
    if block.width(f"{name}_b"):
        return matrix(env, width, matrix(env, block.width(f"{name}_a"), x, w=f"{name}_a"), w=f"{name}_b")
    return matrix(env, width, x, w=f"{name}_a" if block.width(f"{name}_a") else name)
