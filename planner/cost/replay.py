"""Addresses for all tensors of a tape, device by device.

Mirrors ``ggml_gallocr_alloc_graph_impl`` and ``ggml_gallocr_allocate_node`` (ggml/src/ggml-alloc.c, b11434): leaves
first, a tensor in place of a source where it can be, freed after its last reader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from planner.cost.arena import Arena
from planner.cost.schedule import assign, splits
from planner.cost.tape import HOST, Kind, Node, Tape

ALIGNMENT: Final = 128
"""Of tensors in a CUDA buffer; other backends align to 32 or 64, which moves a peak by a few KiB."""


def replay(
    tape: Tape, devices: Iterable[str], *, cuda: Collection[str] = (), alignment: int = ALIGNMENT, copies: int = 1
) -> dict[str, dict[str, int]]:
    """Bytes alive by label when a device's buffer is largest; with the holes between them they sum to its size.

    Args:
        cuda: devices of the CUDA backend, which keeps sources of fused steps and asks for more behind some.
        copies: under pipeline parallelism, how often every input is kept: from the start and for good
            (``sched->n_copies`` in ``ggml_backend_sched_split_graph``, b11434).
    """
    assign(tape.steps)
    leaves, held = _leaves(tape.steps), list[Node]()
    order, inputs = splits(tape.steps, cuda)
    if copies > 1:
        held = [node for node in (*leaves, *inputs) if node.kind is Kind.COPY or node.home == HOST]
        leaves = [*(_again(node) for node in held for _ in range(copies - 1)), *inputs, *leaves]
    for node in held:
        node.readers = 1  # an output of the graph: never freed
    for node in order:
        root = node.root
        if root is not None:
            root.views += 1
        for source in node.sources:
            source.readers += 1
    ledger = _Ledger(devices, alignment, cuda)
    for node in leaves:
        ledger.allocate(node, 0)
    _run(ledger, order)
    return ledger.alive()


def _run(ledger: _Ledger, order: Sequence[Node]) -> None:
    """Room for every step and copy that has none yet, given back after the last reader."""
    allocate, release, made, copied = ledger.allocate, ledger.release, Kind.STEP, Kind.COPY
    for step, node in enumerate(order):
        if node.born < 0 and (node.kind is made or node.kind is copied):
            allocate(node, step)
        for source in node.sources:
            source.readers = left = source.readers - 1
            if not left and not source.views and (source.owned or source.root is not None):
                release(source, step)


def _leaves(steps: Sequence[Node]) -> list[Node]:
    """Leaves in the order they are first read."""
    leaf = Kind.LEAF
    return list(dict.fromkeys([source for node in steps for source in node.sources if source.kind is leaf]))


def _again(node: Node) -> Node:
    copy = Node(Kind.LEAF, node.label, node.size)
    copy.home = node.home
    return copy


class _Ledger:
    """Arenas of all devices, and who lives where."""

    def __init__(self, devices: Iterable[str], alignment: int, cuda: Collection[str]) -> None:
        self._arenas = {device: Arena(alignment) for device in devices}
        self._tops = dict.fromkeys(self._arenas, 0)
        self._tenants: list[Node] = []
        self._cuda = cuda

    def allocate(self, node: Node, step: int) -> None:
        device = node.home or HOST
        node.owned, node.born = True, step
        self._tenants.append(node)
        if node.extra and device in self._cuda:
            node.size += node.extra
        arena = self._arenas[device]
        if node.inplace and self._take_over(arena, node, step):
            return
        before = arena.peak
        node.address = arena.take(node.size)
        if arena.peak > before:
            self._tops[device] = step

    def _take_over(self, arena: Arena, node: Node, step: int) -> bool:
        """Live on in a source of the same shape that nobody else reads; never in a view's."""
        for parent in node.sources:
            if not parent.owned or parent.key is None or parent.key != node.key or parent.home != node.home:
                continue
            if parent.readers != 1 or parent.views:
                continue
            parent.owned, parent.died = False, step - 1
            node.address = parent.address
            if parent.size > node.size:
                arena.give(node.address + node.size, parent.size - node.size)
            return True
        return False

    def release(self, source: Node, step: int) -> None:
        """Free what nobody reads any more; a view's source with its last view."""
        owner = source
        if source.root is not None:
            owner = source.root
            owner.views -= 1
            if owner.views or owner.readers:
                return
        if owner.owned:
            owner.owned, owner.died = False, step
            self._arenas[owner.home or HOST].give(owner.address, owner.size)

    def alive(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for device, arena in self._arenas.items():
            top, labels = self._tops[device], dict[str, int]()
            for node in self._tenants:
                if node.born <= top and (node.died < 0 or node.died >= top) and node.home == device:
                    labels[node.label] = labels.get(node.label, 0) + node.size
            labels["gaps"] = arena.peak - sum(labels.values())
            found[device] = labels
        return found
