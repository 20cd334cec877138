"""The graph of one device as a list of steps, replayed through the allocator.

Mirrors ``ggml_gallocr_allocate_node`` (in-place reuse, views) and the copies of foreign inputs that
``ggml_backend_sched_split_graph`` puts at the start of a split (ggml/src/ggml-backend.cpp, b11434).
"""

from __future__ import annotations

from itertools import pairwise

from planner.cost.arena import Arena


class Node:
    """One tensor. ``root`` is the tensor a view looks into; ``foreign`` is copied in from elsewhere."""

    __slots__ = (
        "address", "born", "died", "foreign", "inplace", "key", "label", "owned", "readers", "root", "size",
        "sources", "views",
    )  # fmt: skip

    def __init__(self, label: str, size: int, sources: tuple[Node, ...], key: object = None) -> None:
        self.label, self.size, self.sources, self.key = label, size, sources, key
        self.inplace = self.foreign = self.owned = False
        self.root: Node | None = None
        self.readers = self.views = self.address = 0
        self.born, self.died = -1, -1


class Tape:
    """Records steps in the order llama.cpp adds them; ``replay`` allocates them.

    A step that reads a host weight opens a new split. The copy of that weight, and all foreign inputs that
    are first read in a split, are allocated at its start.
    """

    def __init__(self) -> None:
        self._steps: list[Node] = []
        self._opens: set[int] = set()
        self._held: list[Node] = []

    def foreign(self, label: str, size: int, key: object = None) -> Node:
        """A tensor of another device; it takes room from the split that first reads it."""
        node = Node(label, size, (), key)
        node.foreign = True
        return node

    def op(
        self, label: str, size: int, *sources: Node, key: object = None, inplace: bool = False, staged: int = 0
    ) -> Node:
        """A step with a result of ``size`` bytes.

        Args:
            key: shape; in place, a step may take over a source of the same key that nobody else reads.
            staged: bytes of a host weight it reads.
        """
        if staged:
            sources = (self.foreign("staged host weights", staged), *sources)
            self.split()
        node = Node(label, size, sources, key)
        node.inplace = inplace
        self._steps.append(node)
        return node

    def view(self, source: Node, *others: Node, size: int = 0, key: object = None) -> Node:
        """A reshape, permutation or part of a tensor, or a step that writes into it."""
        node = Node(source.label, size or source.size, (source, *others), key)
        node.root = source.root or source
        self._steps.append(node)
        return node

    def store(self, *sources: Node) -> None:
        """A step that writes into memory outside the graph (a cache)."""
        self._steps.append(Node("store", 0, sources))

    def hold(self, *nodes: Node) -> None:
        """Inputs of the graph that are this device's own: there from the start, whoever reads them."""
        self._held += nodes

    def split(self) -> None:
        """The next step opens a split."""
        self._opens.add(len(self._steps))

    def replay(self, alignment: int, copies: int = 1) -> dict[str, int]:
        """Bytes alive by label when the buffer is largest; with the holes between them they sum to its size.

        Args:
            copies: under pipeline parallelism, how often every input is kept: from the start and for good
                (``sched->n_copies`` in ``ggml_backend_sched_split_graph``, b11434). Staged weights are no input.
        """
        order = self._with_inputs() if copies == 1 else self._with_copies(copies)
        for node in order:
            if node.root is not None:
                node.root.views += 1
            for source in node.sources:
                source.readers += 1
        arena = Arena(alignment)
        peak, top = 0, 0
        for step, node in enumerate(order):
            _allocate(arena, node, step)
            if arena.peak > peak:
                peak, top = arena.peak, step
            for source in node.sources:
                _read(arena, source, step)
        alive: dict[str, int] = {}
        for node in order:
            if 0 <= node.born <= top and (node.died < 0 or node.died >= top):
                alive[node.label] = alive.get(node.label, 0) + node.size
        alive["gaps"] = peak - sum(alive.values())
        return alive

    def _with_inputs(self) -> list[Node]:
        order = list(self._held)
        seen = {id(node) for node in order}
        cuts = sorted({0, *self._opens, len(self._steps)})
        for start, stop in pairwise(cuts):
            for node in self._steps[start:stop]:
                for source in node.sources:
                    if source.foreign and id(source) not in seen:
                        seen.add(id(source))
                        order.append(source)
            order += self._steps[start:stop]
        return order

    def _with_copies(self, copies: int) -> list[Node]:
        order = self._with_inputs()
        inputs = [node for node in order if node.foreign]
        more = [Node(node.label, node.size, ()) for node in inputs for _ in range(copies - 1)]
        for node in inputs:
            node.readers = 1  # never read to the end, so never freed
        return [*inputs, *more, *(node for node in order if not node.foreign)]


def _allocate(arena: Arena, node: Node, step: int) -> None:
    if node.root is not None or node.size == 0:
        return
    node.owned, node.born = True, step
    if node.inplace:
        for parent in node.sources:
            if not parent.owned or parent.root or parent.key is None or parent.key != node.key:
                continue
            if parent.readers != 1 or parent.views:
                continue
            parent.owned, parent.died = False, step - 1
            node.address = parent.address
            if parent.size > node.size:
                arena.give(node.address + node.size, parent.size - node.size)
            return
    node.address = arena.take(node.size)


def _read(arena: Arena, source: Node, step: int) -> None:
    source.readers -= 1
    if source.readers or source.views:
        return
    owner = source
    if source.root is not None:
        owner = source.root
        owner.views -= 1
        if owner.views or owner.readers:
            return
    if owner.owned:
        owner.owned, owner.died = False, step
        arena.give(owner.address, owner.size)
