"""The first and the last steps of a graph: from tokens to the residual stream, and from that to logits."""

from __future__ import annotations

from planner.cost.blocks import Block, Place
from planner.cost.draw import Env, fresh, inplace, matrix, norm
from planner.cost.hyper import last_row
from planner.cost.tape import HOST, Node


def embedded(env: Env) -> Node:
    """Rows of the embedding, and the branch for mixed token and embedding rows.

    ``build_inp_embd`` (src/llama-graph.cpp, b11434): that branch never runs, but is allocated; its copy of the
    embedding input, which nobody reads, is never freed.
    """
    rows, tape = 4 * env.n_embd * env.n, env.tape
    x, table = _looked_up(env)
    tape.view(tape.leaf("embedding rows", rows))
    second = tape.op("embedding rows", rows, tape.leaf("inputs", 4 * env.n), weight=table) if env.traits.mixed else None
    if env.traits.lookup_width:
        env.lookup = tape.op("lookup rows", 4 * env.traits.lookup_width * env.n, weight=table)
    if second:
        target = tape.op("unused input branch", rows, tape.leaf("embedding rows", rows))
        tape.write(target, second, tape.leaf("inputs", 8 * env.n))
    if env.traits.scaled_embedding:
        x = inplace(env, x)
    tape.expand()
    return _streams(env, x)


def _looked_up(env: Env) -> tuple[Node, Node]:
    table = env.tape.stored("weights", 0, HOST, weight=True)
    tokens = env.tape.leaf("inputs", 4 * env.n)
    key = (env.n_embd, env.n)
    return env.tape.op("embedding rows", 4 * env.n_embd * env.n, tokens, key=key, weight=table), table


def _streams(env: Env, x: Node) -> Node:
    return matrix(env, env.hyper * env.n_embd, x) if env.hyper > 1 else x


def drafted(env: Env) -> Node:
    """Of a prediction block: the embedding beside the main context's last hidden row (``graph_mtp`` in
    src/models/*.cpp, b11434)."""
    rows = 4 * env.n_embd * env.n
    hidden = norm(env, env.tape.leaf("hidden rows", rows), "nextn.hnorm")
    both = fresh(env, 2 * rows, norm(env, _looked_up(env)[0], "nextn.enorm"), hidden)
    return _streams(env, matrix(env, env.n_embd, both, w="nextn.eh_proj"))


def logits(env: Env, block: Block, x: Node, output: str, head: str) -> None:
    """The last norm, or the last mix of parallel streams, and the multiply with the output matrix.

    Args:
        output: device of the output layer; ``head`` of its matrix.
    """
    tape = env.tape
    matrix_of = tape.stored("weights", env.traits.head_bytes, head, weight=True)
    small = tape.stored("weights", 4 * env.n_embd, output, weight=True)
    row = _last_norm(env, inplace(env, x), small) if env.hyper == 1 else last_row(env, block, x, small)
    tape.op("logits", 4 * env.traits.n_vocab * env.n, row, weight=matrix_of, batch=env.n)


def draft_logits(env: Env, block: Block, place: Place, x: Node, head: str) -> None:
    """The last norm is an output, for the next draft step; then the rows that are sampled from."""
    tape, own = env.tape, block.sizes.get("nextn.shared_head_head")
    size, home = (own, place.device) if own else (env.traits.head_bytes, head)
    matrix_of = tape.stored("weights", size, home, weight=True)
    small = tape.stored("weights", 4 * env.n_embd, place.device, weight=True)
    row = _last_norm(env, inplace(env, x), small)
    tape.view(row)
    env.n = env.n_outputs
    chosen = matrix(env, env.n_embd, row, env.outputs)
    tape.op("logits", 4 * env.traits.n_vocab * env.n, chosen, weight=matrix_of, batch=env.n)


def _last_norm(env: Env, scaled: Node, small: Node) -> Node:
    return env.tape.op(scaled.label, scaled.size, scaled, key=scaled.key, inplace=True, weight=small, batch=env.n)
