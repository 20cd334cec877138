"""Which device computes which step, and what is copied there: the scheduler's rule, on a tape.

Mirrors passes 2 to 5 of ``ggml_backend_sched_split_graph`` (ggml/src/ggml-backend.cpp, b11434); pass 1 is recorded
on the tape. Every device is taken to support every step, and none to read another's memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from planner.cost.tape import HOST, Kind, Node


def assign(steps: Sequence[Node]) -> None:
    """Give every step a device.

    Pass 2: a device spreads down, then up, over steps without a device, up to the next step that has one; GPUs
    before the host. Pass 4: a view is where its source is, a leaf where it is first read.
    """
    view = Kind.VIEW
    free = [node for node in steps if node.kind is not view]
    for order, hosts in ((free, False), (free[::-1], False), (free, True), (free[::-1], True)):
        if not hosts or any(node.home is None for node in free):
            _spread(order, hosts=hosts)
    for node in steps:
        if node.home is None and node.root is not None:
            node.home = node.root.home
        for source in node.sources:
            if source.home is None:
                source.home = node.home


def _spread(order: Iterable[Node], *, hosts: bool) -> None:
    current: str | None = None
    for node in order:
        if node.home is None:
            node.home = current
        else:
            current = node.home if hosts or node.home != HOST else None


def splits(steps: Sequence[Node], cuda: Collection[str]) -> tuple[list[Node], list[Node]]:
    """Steps in the order that is allocated, the copies of a split before its steps; and all copies.

    A step that reads a weight of another device opens a new split if the current one has copies: the memory of
    earlier weights can go.
    """
    order, inputs = list[Node](), list[Node]()
    known: dict[tuple[int, str], Node] = {}
    device, start, filled, view = "", 0, False, Kind.VIEW
    for node in steps:
        home = node.home or HOST
        if node.kind is not view:
            sources = node.sources
            staged = filled and sources and sources[0].weight and sources[0].home != home
            if staged or home != device:
                device, start, filled = home, len(order), False
            for source in sources:
                if source.home != home and source is not node.root:
                    made = _copies(node, home, known)
                    inputs += made[1::2]
                    order[start:start] = made
                    start += len(made)
                    filled = filled or bool(made)
                    break
        order.append(node)
        if node.keeps and home in cuda:
            order.append(_reader(node.keeps, home))
    return order, inputs


def _copies(node: Node, home: str, known: dict[tuple[int, str], Node]) -> list[Node]:
    """Copies that a step is the first to need, each behind a reader that keeps its source until then."""
    made: list[Node] = []
    sources = list(node.sources)
    for i, source in enumerate(sources):
        if source.home == home or source is node.root:
            continue
        copy = known.get((id(source), home))
        if copy is None:
            label = "staged host weights" if source.weight else source.label
            copy = Node(Kind.COPY, label, source.span, (), source.key)
            copy.home, copy.extra = home, source.extra
            known[id(source), home] = copy
            made += [_reader((source,), source.home), copy]
        sources[i] = copy
    node.sources = tuple(sources)
    return made


def _reader(sources: tuple[Node, ...], device: str | None) -> Node:
    node = Node(Kind.KEEP, "", 0, sources)
    node.home = device
    return node
