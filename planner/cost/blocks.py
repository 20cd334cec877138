"""What the graph of a device is drawn with: a block, the shared inputs, and the elementary steps.

Which parts a block has is read from its tensors, not from the architecture's name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Final

from planner.cost.kv_types import is_quantised, row_bytes
from planner.cost.tape import Node, Tape
from planner.facts.model import Layer

ROW_PADDING: Final = 512
"""Elements (``MATRIX_ROW_PADDING``)."""

PLAIN_TYPES: Final = ("F32", "F16", "BF16", "I32")
"""Types that are not quantised."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block as the graph sees it; shapes, bytes and types by tensor name without ``blk.N.`` and ``.weight``."""

    layer: Layer
    shapes: dict[str, tuple[int, ...]]
    sizes: dict[str, int]
    types: dict[str, str]

    def padding(self, name: str) -> int:
        """Bytes that CUDA adds to a quantised tensor whose rows are not whole multiples of 512 elements
        (``ggml_backend_cuda_buffer_type_get_alloc_size``, ggml/src/ggml-cuda/ggml-cuda.cu, b11434)."""
        shape = self.shapes[name]
        short = -shape[0] % ROW_PADDING
        return short * self.sizes[name] // prod(shape) if short and self.types[name] not in PLAIN_TYPES else 0

    def width(self, name: str) -> int:
        """Output width of a matrix, 0 without it."""
        shape = self.shapes.get(name)
        return shape[1] if shape and len(shape) > 1 else 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where one block is.

    Args:
        device: of its weights, but for ``elsewhere``: ``(tensor name, device)``.
        cache: device of its cache or state.
    """

    device: str
    cache: str
    elsewhere: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of the graph for one window size: where K and V go, and who sees whom."""

    k_indices: Node
    v_indices: Node
    mask: Node
    rotations: tuple[Node, Node]


@dataclass(slots=True)
class Env:
    """What all blocks share, and the block and place that are being drawn.

    Args:
        n: tokens; the last block narrows it to the outputs.
        n_copies: of recurrent states: one, and the draft depth.
        inputs: by window (0: full caches).
        cells: cells of all streams by window.
        k_type, v_type: of the caches.
        end_on_host: the end of attention without flash attention is forced onto the host.
        cuda: devices of the CUDA backend.
        pinned_norms: a norm is forced onto the device of its block.
        entries: masks of compressed caches, by tokens per entry.
        indexer_mask: mask of the indexer's cache, f16 always.
        pool: cells that an indexer scores together; 0 without such an indexer.
        rope: Q and K are rotated by position.
        gate_steps: of the router's activation: one, or a root after a softplus.
        normed_weights, scaled_weights: weights of the chosen experts are made to sum to one, then scaled.
        residual_first: a residual sum is written over the residual, not over what is added.
        hyper: parallel residual streams (hyper-connections), else 1.
        lookup: rows gathered from a per-layer or n-gram table on the host.
        top_k: cells chosen by the last indexer.
        spare_zeros: leaves of zeros of like blocks that are not drawn.
        decay: decays between the tokens of a batch, for linear attention.
        rotated_k, rotated_v: a quantised K (V) is rotated by one more multiply.
    """

    tape: Tape
    n: int
    n_outputs: int
    n_seq: int
    n_copies: int
    n_embd: int
    n_stream: int
    n_ctx_seq: int
    n_top_k: int
    n_groups: int
    positions: Node
    outputs: Node
    inputs: dict[int, Inputs]
    cells: dict[int, int]
    k_type: str
    v_type: str
    flash_attn: bool
    end_on_host: bool
    pinned_norms: bool
    cuda: tuple[str, ...]
    rotated_k: bool
    rotated_v: bool
    entries: dict[int, Node]
    indexer_mask: Node
    pool: int
    hyper: int
    rope: bool
    gate_steps: int
    normed_weights: bool
    scaled_weights: bool
    residual_first: bool
    block: Block
    place: Place
    lookup: Node | None = None
    top_k: Node | None = None
    spare_zeros: int = 0
    decay: Node | None = None
    _weights: dict[str, Node] = field(default_factory=dict)
    _elsewhere: dict[str, str] = field(default_factory=dict)
    _given: dict[str, Node] = field(default_factory=dict)

    def enter(self, block: Block, place: Place) -> None:
        """Draw this block from now on."""
        self.block, self.place = block, place
        self._weights, self._elsewhere = {}, dict(place.elsewhere)

    def weight(self, name: str | None) -> Node | None:
        """A weight of the block, where it is; None if the block has none of this name."""
        if name is None or name not in self.block.sizes:
            return None
        if name not in self._weights:
            device = self._elsewhere.get(name, self.place.device)
            self._weights[name] = self.tape.stored(
                "weights", self.block.sizes[name], device, weight=True, extra=self.block.padding(name)
            )
        return self._weights[name]

    def given(self, name: str, size: int) -> Node:
        """A further input of the graph, the same for all blocks that ask for it by name."""
        if name not in self._given:
            self._given[name] = self.tape.leaf("inputs", size)
        return self._given[name]

    def together(self, *names: str) -> bool:
        """Whether all these weights are on the block's device."""
        return not any(name in self._elsewhere for name in names)

    def cache(self, label: str, size: int, kind: str = "f32", row: int = ROW_PADDING) -> Node:
        """A cache or state of the block: ``size`` bytes that a step reads, in rows of ``row`` elements."""
        short = -row % ROW_PADDING if is_quantised(kind) else 0
        return self.tape.stored(label, size, self.place.cache, extra=row_bytes(kind, short) if short else 0)


def matrix(env: Env, width: int, *sources: Node, label: str = "activations", w: str | None = None) -> Node:
    """A multiply with weight ``w`` of the block, or a sum: ``width`` f32 elements per token."""
    weight = env.weight(w)
    return env.tape.op(label, 4 * width * env.n, *sources, key=(width, env.n), weight=weight, batch=env.n)


def inplace(env: Env, node: Node, *others: Node, w: str | None = None, rows: int = 1) -> Node:
    """An elementwise step, ``rows`` per token: over its first source if nobody else reads that."""
    weight = env.weight(w)
    return env.tape.op(
        node.label, node.size, node, *others, key=node.key, inplace=True, weight=weight, batch=rows * env.n
    )


def norm(env: Env, node: Node, w: str | None = None, rows: int = 1) -> Node:
    """Normalise, then scale by weight ``w`` (``build_norm``, src/llama-graph.cpp, b11434)."""
    home = env.place.device if env.pinned_norms and w in env.block.sizes else None
    scaled = env.tape.op(node.label, node.size, node, key=node.key, inplace=True, home=home)
    return inplace(env, scaled, w=w, rows=rows)


def fresh(
    env: Env, size: int, *sources: Node, label: str = "activations", w: str | None = None, batch: int | None = None
) -> Node:
    """A step whose result shares no memory with a source; ``batch`` rows, one per token if not given."""
    rows = env.n if batch is None else batch
    return env.tape.op(label, size, *sources, key=(size,), weight=env.weight(w), batch=rows)


def part(env: Env, node: Node, width: int) -> Node:
    """A strided part of a tensor."""
    return env.tape.view(node, size=4 * width * env.n)
