"""Predicted memory as a tree that sums: device → model / context / compute / cache / overhead → terms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from planner.facts.reading import Source

PROMPT_CACHE: Final = "prompt cache (-cram)"
"""Name of the overhead that llama-server keeps finished prompts in."""


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

    Args:
        shared_free_bytes: what stays free of the host memory that this device shares, all that the plan takes
            counted; None for a device with memory of its own, or where free host memory is not known.
    """

    id: str
    total_bytes: int
    used_before_bytes: int
    model: tuple[Term, ...] = ()
    context: tuple[Term, ...] = ()
    compute: tuple[Term, ...] = ()
    cache: tuple[Term, ...] = ()
    overhead: tuple[Term, ...] = ()
    shared_free_bytes: int | None = None

    @property
    def predicted_bytes(self) -> int:
        """What llama.cpp will take on this device, its context overhead included."""
        return sum(total(t) for t in (self.model, self.context, self.compute, self.cache, self.overhead))

    @property
    def room_bytes(self) -> int:
        """``total - used before - predicted``: what the device's own limit leaves; negative if it does not fit."""
        return self.total_bytes - self.used_before_bytes - self.predicted_bytes

    @property
    def headroom_bytes(self) -> int:
        """What stays free: the room, or the rest of the host memory it shares where that is less."""
        room = self.room_bytes
        return room if self.shared_free_bytes is None else min(room, self.shared_free_bytes)

    @property
    def is_bound_by_ram(self) -> bool:
        """Whether the host memory it shares ends before its own limit."""
        return self.headroom_bytes < self.room_bytes


@dataclass(frozen=True, slots=True)
class HostMemory:
    """RAM. Mapped bytes can be evicted; pinned and anonymous ones cannot.

    Args:
        pinned_bytes: page-locked part of ``predicted_bytes``.
        mapped_bytes: part of the model reached through the mapped file (hot bytes, not the file size).
        available_bytes: RAM that can be used now; None if unknown.
        lazy_bytes: part of ``mapped_bytes`` that is read from disk row by row, in every load mode: it is in
            llama.cpp's own figures, but need not be in RAM.
        shared_bytes: what devices without memory of their own take of this RAM; not in ``predicted_bytes``.
        repacked_bytes: part of ``model`` that is a copy in the CPU's own layouts.
    """

    model: tuple[Term, ...] = ()
    context: tuple[Term, ...] = ()
    compute: tuple[Term, ...] = ()
    overhead: tuple[Term, ...] = ()
    pinned_bytes: int = 0
    mapped_bytes: int = 0
    available_bytes: int | None = None
    lazy_bytes: int = 0
    shared_bytes: int = 0
    repacked_bytes: int = 0

    @property
    def predicted_bytes(self) -> int:
        return sum(total(t) for t in (self.model, self.context, self.compute, self.overhead))

    @property
    def unevictable_bytes(self) -> int:
        """What must really be in RAM: everything but the mapped file, devices that share it included."""
        return self.predicted_bytes - self.mapped_bytes + self.shared_bytes

    @property
    def resident(self) -> tuple[int, int]:
        """Bytes of mapped weights that RAM holds beside what cannot be evicted, and all of them, lazy ones left out;
        what is not held is read from disk."""
        hot = self.mapped_bytes - self.lazy_bytes
        return hot if self.headroom_bytes is None else min(max(hot + self.headroom_bytes, 0), hot), hot

    @property
    def prompt_cache_bytes(self) -> int:
        """What finished prompts may take, a part of the overhead."""
        return sum(term.n_bytes for term in self.overhead if term.name == PROMPT_CACHE)

    @property
    def headroom_bytes(self) -> int | None:
        """``available - predicted - shared``, tables that are read lazily left out."""
        if self.available_bytes is None:
            return None
        return self.available_bytes - self.shared_bytes - (self.predicted_bytes - self.lazy_bytes)


@dataclass(frozen=True, slots=True)
class Memory:
    devices: tuple[DeviceMemory, ...]
    host: HostMemory


def joined(devices: tuple[DeviceMemory, ...], host: HostMemory, unified: frozenset[str]) -> Memory:
    """Devices and host as one: the bytes of devices in ``unified`` are taken from the host's RAM.

    Args:
        unified: ids of the devices that have no memory of their own; their total is a limit, not a stock.
    """
    shared = sum(device.predicted_bytes for device in devices if device.id in unified)
    if not shared:
        return Memory(devices, host)
    host = replace(host, shared_bytes=shared)
    free = host.headroom_bytes
    return Memory(tuple(replace(d, shared_free_bytes=free) if d.id in unified else d for d in devices), host)
