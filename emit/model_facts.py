"""What is derived from a model only to be shown: bytes by role, KV bytes per token, blocks by kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from planner.cost.kv_cache import KvTable
from planner.errors import OptionError
from planner.facts.model import Layer, Model, Role, Tensor

KV_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")


@dataclass(slots=True)
class RoleBytes:
    """Tensors of one role: how many, their bytes, and the bytes by ggml type."""

    n_tensors: int = 0
    n_bytes: int = 0
    types: dict[str, int] = field(default_factory=dict)


def by_role(tensors: Iterable[Tensor]) -> dict[Role, RoleBytes]:
    """Tensors summed by role, in the order of ``Role``."""
    found: dict[Role, RoleBytes] = {}
    for tensor in tensors:
        entry = found.setdefault(tensor.role, RoleBytes())
        entry.n_tensors += 1
        entry.n_bytes += tensor.n_bytes
        entry.types[tensor.type] = entry.types.get(tensor.type, 0) + tensor.n_bytes
    return {role: found[role] for role in Role if role in found}


def kv_bytes_per_token(model: Model, kind: str) -> int | None:
    """Bytes one more token of context costs with K and V of this type, beyond every sliding window.

    None where a row of the cache is not whole blocks of the type. Compressed caches count their share,
    rounded up per cache.
    """
    try:
        table = KvTable(model, kind, kind, flash_attn=True)
    except OptionError:
        return None
    return sum(-(-sums[-1] // cache.ratio) for cache, sums in table.rows.items() if not cache.window)


def window_bytes_per_cell(model: Model, kind: str) -> int | None:
    """Bytes of one cell over all sliding windows; None as above."""
    try:
        table = KvTable(model, kind, kind, flash_attn=True)
    except OptionError:
        return None
    return sum(sums[-1] for cache, sums in table.rows.items() if cache.window)


@dataclass(frozen=True, slots=True)
class Kind:
    """Blocks that look alike: their ranges ``(first, last)``, one of them, and bytes and types per role."""

    ranges: tuple[tuple[int, int], ...]
    layer: Layer
    roles: tuple[tuple[Role, int, tuple[str, ...]], ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of one block."""
        return sum(n_bytes for _, n_bytes, _ in self.roles)


def kinds(model: Model) -> tuple[Kind, ...]:
    """Blocks by kind: same attention, same bytes and types per role; in order of their first block."""
    tensors: dict[int, list[Tensor]] = {}
    for tensor in model.tensors:
        if tensor.layer is not None:
            tensors.setdefault(tensor.layer, []).append(tensor)
    found: dict[object, Kind] = {}
    for layer in model.layers:
        entries = by_role(tensors.get(layer.index, ()))
        roles = tuple((role, entry.n_bytes, tuple(sorted(entry.types))) for role, entry in entries.items())
        key = (replace(layer, index=0), roles)
        known = found.get(key, Kind((), layer, roles))
        ranges = known.ranges
        if ranges and ranges[-1][1] == layer.index - 1:
            ranges = (*ranges[:-1], (ranges[-1][0], layer.index))
        else:
            ranges = (*ranges, (layer.index, layer.index))
        found[key] = replace(known, ranges=ranges)
    return tuple(found.values())
