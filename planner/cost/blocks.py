"""What the graph of a device is drawn with: a block, the shared inputs, and the elementary steps.

Which parts a block has is read from its tensors, not from the architecture's name.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.cost.tape import Node, Tape
from planner.facts.model import Layer


@dataclass(frozen=True, slots=True)
class Block:
    """One block as the graph sees it; ``shapes`` by tensor name without ``blk.N.`` and ``.weight``."""

    layer: Layer
    shapes: dict[str, tuple[int, ...]]

    def width(self, name: str) -> int:
        """Output width of a matrix, 0 without it."""
        shape = self.shapes.get(name)
        return shape[1] if shape and len(shape) > 1 else 0


@dataclass(frozen=True, slots=True)
class Inputs:
    """Foreign tensors of one window size: where K and V go, and who sees whom."""

    k_indices: Node
    v_indices: Node
    mask: Node
    rotations: tuple[Node, Node]


@dataclass(slots=True)
class Env:
    """What all blocks of a device share.

    Args:
        n: tokens; the last block narrows it to the outputs.
        inputs: by window (0: full caches).
        cells: cells of all streams by window.
        f16_copies: flash attention converts a quantised K and V to f16 behind its result (CUDA).
        fused_sum: the weighted sum of experts keeps its operands (CUDA).
        entries: masks of compressed caches, by tokens per entry.
        indexer_mask: mask of the indexer's cache, f16 always.
        zeros: leaves of zeros that sparse blocks write into their masks, one per block.
        pool: cells that an indexer scores together; 0 without such an indexer.
        hyper: parallel residual streams (hyper-connections), else 1.
        lookup: rows gathered from a per-layer or n-gram table on the host.
        handed: the next block's first norm, not yet scaled, where the device before computes it.
        top_k: cells chosen by the last indexer.
        decay: decays between the tokens of a batch, for linear attention.
        rotated_k, rotated_v: a quantised K (V) is rotated by one more multiply.
    """

    tape: Tape
    n: int
    n_outputs: int
    n_seq: int
    n_embd: int
    n_stream: int
    n_ctx_seq: int
    n_top_k: int
    n_groups: int
    positions: Node
    outputs: Node
    inputs: dict[int, Inputs]
    cells: dict[int, int]
    flash_attn: bool
    f16_copies: bool
    fused_sum: bool
    rotated_k: bool
    rotated_v: bool
    entries: dict[int, Node]
    indexer_mask: Node
    zeros: list[Node]
    pool: int
    hyper: int
    lookup: Node
    handed: Node | None = None
    top_k: Node | None = None
    decay: Node | None = None


def matrix(env: Env, width: int, *sources: Node, label: str = "activations") -> Node:
    """A multiply: ``width`` f32 elements per token."""
    return env.tape.op(label, 4 * width * env.n, *sources, key=(width, env.n))


def inplace(env: Env, node: Node, *others: Node) -> Node:
    """An elementwise step: over its first source if nobody else reads that."""
    return env.tape.op(node.label, node.size, node, *others, key=node.key, inplace=True)


def norm(env: Env, node: Node) -> Node:
    return inplace(env, inplace(env, node))


def fresh(env: Env, size: int, *sources: Node, label: str = "activations") -> Node:
    """A step whose result shares no memory with a source."""
    return env.tape.op(label, size, *sources, key=(size,))


def part(env: Env, node: Node, width: int) -> Node:
    """A strided part of a tensor."""
    return env.tape.view(node, size=4 * width * env.n)
