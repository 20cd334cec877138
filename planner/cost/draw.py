"""What a graph is drawn with: the shared inputs, the block that is being drawn, and the elementary steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from planner.cost.blocks import ROW_PADDING, Block, Place
from planner.cost.kv_types import is_quantised, row_bytes
from planner.cost.tape import Node, Tape
from planner.cost.traits import Traits


class Inputs(NamedTuple):
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
        lookup: rows gathered from a per-layer or n-gram table on the host.
        top_k: cells chosen by the last indexer.
        spare_zeros: leaves of zeros of like blocks that are not drawn.
        wide_mask: the mask in f32, where blocks of positions are chosen.
        n_positions: positions that a cache may hold when the graph is drawn.
        selected: cells chosen by the last indexer of pools, as a mask or as indices.
        bank: residuals that later blocks read again.
        decay: decays between the tokens of a batch, for linear attention.
        rotated_k, rotated_v: a quantised K (V) is rotated by one more multiply.
    """

    tape: Tape
    traits: Traits
    n: int
    n_outputs: int
    n_seq: int
    n_copies: int
    n_stream: int
    n_ctx_seq: int
    n_ubatch: int
    n_positions: int
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
    block: Block
    place: Place
    lookup: Node | None = None
    top_k: Node | None = None
    spare_zeros: int = 0
    decay: Node | None = None
    wide_mask: Node | None = None
    bank: Node | None = None
    selected: Node | None = None
    _weights: dict[str, Node] = field(default_factory=dict)
    _elsewhere: dict[str, str] = field(default_factory=dict)
    _given: dict[str, Node] = field(default_factory=dict)

    @property
    def n_embd(self) -> int:
        return self.traits.n_embd

    @property
    def hyper(self) -> int:
        """Parallel residual streams (hyper-connections), else 1."""
        return self.traits.hyper

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
    """A multiply with weight ``w`` of the block, and its scale if it has one, or a sum: ``width`` f32 elements per
    token."""
    weight = env.weight(w)
    node = env.tape.op(label, 4 * width * env.n, *sources, key=(width, env.n), weight=weight, batch=env.n)
    return inplace(env, node, w=f"{w}.scale") if env.block.shapes.get(f"{w}.scale") == (1,) else node


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
