"""The graph of one context as a list of steps, each with the device it must run on, if any.

Mirrors what ``ggml_backend_sched_backend_id_from_cur`` reads off a tensor (ggml/src/ggml-backend.cpp, b11434);
``schedule`` finds the other devices, ``replay`` allocates.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

HOST: Final = "CPU"
"""Id of host memory, as llama.cpp names the device."""

OP_OFFLOAD_MIN_BATCH: Final = 32
"""Batches from here on go to a GPU though the weight is on the host (``GGML_OP_OFFLOAD_MIN_BATCH``, #18535)."""


class Kind(Enum):
    """``LEAF``: no step makes it, it is in the buffer from the start. ``STORED``: a weight or a cache, in a buffer
    of its own. ``VIEW``: looks into another tensor. ``WRITE``: a step that writes into another tensor."""

    STEP = "step"
    LEAF = "leaf"
    STORED = "stored"
    VIEW = "view"
    WRITE = "write"
    COPY = "copy"
    KEEP = "keep"


class Node:
    """One tensor or step.

    Args:
        size: bytes; of a view, what a step would make of it.
        span: bytes from its first to its last element: what a copy takes.
        key: shape; in place, a step may take over a source of the same key that nobody else reads.
    """

    __slots__ = (
        "address", "born", "died", "extra", "home", "inplace", "keeps", "key", "kind", "label", "owned", "readers",
        "root", "size", "sources", "span", "views", "weight",
    )  # fmt: skip

    def __init__(self, kind: Kind, label: str, size: int, sources: tuple[Node, ...] = (), key: object = None) -> None:
        self.kind = kind
        self.label = label
        self.sources = sources
        self.key = key
        self.size = self.span = size
        self.home: str | None = None
        self.root: Node | None = None
        self.keeps: tuple[Node, ...] = ()
        self.inplace = self.owned = self.weight = False
        self.extra = self.readers = self.views = self.address = 0
        self.born = self.died = -1


class Tape:
    """Records steps in the order llama.cpp adds them.

    Args:
        offload: device that multiplies host weights of large batches; None leaves them to the host.
    """

    def __init__(self, offload: str | None = None) -> None:
        self.steps: list[Node] = []
        self._offload = offload
        self._expanded = 0

    def leaf(self, label: str, size: int, key: object = None, *, given: bool = True) -> Node:
        """A tensor that no step makes; an input of the graph, which is on the host, if ``given``."""
        node = Node(Kind.LEAF, label, size, (), key)
        node.home = HOST if given else None
        return node

    def stored(self, label: str, size: int, home: str, *, weight: bool = False, extra: int = 0) -> Node:
        """A weight or cache in a buffer of its own on ``home``; a step elsewhere copies ``size`` bytes of it.

        Args:
            extra: bytes that CUDA asks for behind a copy.
        """
        node = Node(Kind.STORED, label, size)
        node.home, node.weight, node.extra = home, weight, extra
        return node

    def op(
        self, label: str, size: int, *sources: Node, key: object = None, inplace: bool = False,
        weight: Node | None = None, batch: int = 0, home: str | None = None, extra: int = 0,
    ) -> Node:  # fmt: skip
        """A step with a result of ``size`` bytes.

        Args:
            weight: it is computed where this weight is, or on the offload device.
            batch: rows of the step, as ``get_op_batch_size`` counts them (ggml/src/ggml-cuda/ggml-cuda.cu, b11434).
            home: device it is forced onto.
            extra: bytes that CUDA asks for behind the result.
        """
        if weight is not None:
            sources = (weight, *sources)
            home = home or self._weight_home(weight, batch)
        node = Node(Kind.STEP, label, size, sources, key)
        node.inplace, node.home, node.extra = inplace, home, extra
        self.steps.append(node)
        return node

    def _weight_home(self, weight: Node, batch: int) -> str | None:
        offloaded = weight.home == HOST and batch >= OP_OFFLOAD_MIN_BATCH
        return self._offload if offloaded and self._offload else weight.home

    def view(self, source: Node, *, size: int = 0, span: int = 0) -> Node:
        """A reshape or permutation; a part of ``size`` bytes is strided over all of it unless it has a ``span``."""
        node = Node(Kind.VIEW, source.label, size or source.size, (source,), ("view", size or source.size))
        node.span = span or source.span
        node.root = source.root or source
        self.steps.append(node)
        return node

    def write(self, target: Node, *sources: Node) -> Node:
        """A step that writes into a tensor: where a cache is, elsewhere where the scheduler wants it."""
        node = Node(Kind.WRITE, target.label, target.size, (*sources, target))
        node.root = target.root or target
        if node.root.kind is Kind.STORED:
            node.home = node.root.home
        self.steps.append(node)
        return node

    def keep(self, *nodes: Node) -> None:
        """CUDA keeps these to the end of the step before, which it fuses with earlier ones (``add_alloc_dep`` in
        ``ggml_backend_cuda_graph_optimize``, ggml/src/ggml-cuda/ggml-cuda.cu, b11434)."""
        self.steps[-1].keeps += nodes

    def expand(self) -> None:
        """All steps so far are in the graph (``ggml_build_forward_expand``); later ones come as they are needed."""
        self._expanded = len(self.steps)

    def advance(self, start: int) -> None:
        """The steps from ``start`` on are expanded at once: they go before the steps that wait to be needed."""
        moved = self.steps[start:]
        del self.steps[start:]
        self.steps[self._expanded : self._expanded] = moved
        self._expanded += len(moved)
