"""Predicted memory as a tree that sums: device → model / context / compute / cache / overhead → terms."""

from __future__ import annotations

from dataclasses import dataclass

from planner.facts.reading import Source


@dataclass(frozen=True, slots=True)
class Term:
    """One summand in bytes.

    Args:
        name: what it is, in llama.cpp's words where it has one (``KV full``, ``logits``, …).
        detail: the formula with its numbers, or the reason for an assumed constant.
    """

    name: str
    n_bytes: int
    source: Source
    detail: str = ""


def total(terms: tuple[Term, ...]) -> int:
    return sum(term.n_bytes for term in terms)


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One GPU. ``total_bytes`` and ``used_before_bytes`` come from the machine, the terms from the plan.

    ``compute`` terms are the largest stage and what stands beside it; stages that are not the largest
    do not appear, so the terms sum.
    """

    id: str
    total_bytes: int
    used_before_bytes: int
    model: tuple[Term, ...] = ()
    context: tuple[Term, ...] = ()
    compute: tuple[Term, ...] = ()
    cache: tuple[Term, ...] = ()
    overhead: tuple[Term, ...] = ()

    @property
    def predicted_bytes(self) -> int:
        """What llama.cpp will take on this device, its context overhead included."""
        return sum(total(t) for t in (self.model, self.context, self.compute, self.cache, self.overhead))

    @property
    def headroom_bytes(self) -> int:
        """``total - used before - predicted``: what stays free; negative if it does not fit."""
        return self.total_bytes - self.used_before_bytes - self.predicted_bytes


@dataclass(frozen=True, slots=True)
class HostMemory:
    """RAM. Mapped bytes can be evicted; pinned and anonymous ones cannot.

    Args:
        pinned_bytes: page-locked part of ``predicted_bytes``.
        mapped_bytes: part of the model reached through the mapped file (hot bytes, not the file size).
        available_bytes: RAM that can be used now; None if unknown.
        lazy_bytes: part of ``mapped_bytes`` that is read from disk row by row, in every load mode: it is in
            llama.cpp's own figures, but need not be in RAM.
    """

    model: tuple[Term, ...] = ()
    context: tuple[Term, ...] = ()
    compute: tuple[Term, ...] = ()
    overhead: tuple[Term, ...] = ()
    pinned_bytes: int = 0
    mapped_bytes: int = 0
    available_bytes: int | None = None
    lazy_bytes: int = 0

    @property
    def predicted_bytes(self) -> int:
        return sum(total(t) for t in (self.model, self.context, self.compute, self.overhead))

    @property
    def unevictable_bytes(self) -> int:
        """What must really be in RAM: everything but the mapped file."""
        return self.predicted_bytes - self.mapped_bytes

    @property
    def headroom_bytes(self) -> int | None:
        """``available - predicted``, tables that are read lazily left out."""
        if self.available_bytes is None:
            return None
        return self.available_bytes - (self.predicted_bytes - self.lazy_bytes)


@dataclass(frozen=True, slots=True)
class Memory:
    devices: tuple[DeviceMemory, ...]
    host: HostMemory
