"""Context memory: KV caches by attention kind, indexer and compressed caches, recurrent state."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from planner import units
from planner.cost.kv_types import row_bytes
from planner.cost.layout import Span
from planner.cost.shape import Shape, pad
from planner.cost.tape import HOST
from planner.facts.model import AttentionKind, Layer, Model
from planner.facts.reading import Source
from planner.plans.memory import Term
from planner.plans.settings import Settings
from planner.units import count

CSA_RATIO: Final = 4
"""deepseek4 blocks with this ratio also keep an indexer cache (``DSV4_CSA_RATIO``,
src/llama-kv-cache-dsv4.cpp, b11434)."""


class Cache(NamedTuple):
    """One cache of a block: what a cell costs and how many cells there are.

    Args:
        name: ``full``, ``window 128``, ``indexer``, ``compressed 1/4``, …
        window: sliding cells instead of the whole context.
        ratio: tokens per cell.
        per_seq: a stream per sequence even when the cache is unified.
    """

    name: str
    window: int = 0
    ratio: int = 1
    per_seq: bool = False

    def cells(self, shape: Shape, settings: Settings) -> int:
        """Cells of one stream.

        A sliding cache has ``pad256(min(c, n_swa * (n_seq if unified else 1) + u))`` cells
        (src/llama-kv-cache-iswa.cpp:66-80, b11434); a compressed one ``pad256(ceil(c / ratio))``
        (src/llama-kv-cache-dsv4.cpp:1295-1314, b11434).
        """
        n_ctx = shape.n_ctx_seq
        if self.window and not settings.swa_full:
            n_share = 1 if self.per_seq or shape.n_stream > 1 else shape.n_seq
            return pad(min(n_ctx, self.window * n_share + shape.n_ubatch), 256)
        return n_ctx if self.ratio == 1 else pad(-(-n_ctx // self.ratio), 256)

    def streams(self, shape: Shape) -> int:
        return shape.n_seq if self.per_seq else shape.n_stream


def _rows(layer: Layer, type_k: str, type_v: str, n_embd_v: int) -> Iterable[tuple[Cache, int]]:
    """Caches of one block with the bytes of a cell."""
    compressed = layer.kind is AttentionKind.COMPRESSED
    if layer.n_embd_k:
        name = f"window {layer.window}" if layer.window else "full"
        cell = row_bytes(type_k, layer.n_embd_k) + (row_bytes(type_v, n_embd_v) if n_embd_v else 0)
        yield Cache(name, window=layer.window, per_seq=compressed), cell
    if compressed and layer.compress_ratio:
        ratio = layer.compress_ratio
        yield Cache(f"compressed 1/{ratio}", ratio=ratio, per_seq=True), row_bytes(type_k, layer.n_embd_k)
        if ratio == CSA_RATIO and layer.indexer_k:
            yield Cache(f"indexer 1/{ratio}", ratio=ratio, per_seq=True), row_bytes(type_k, layer.indexer_k)
    elif layer.indexer_k:
        cell = row_bytes(type_k, layer.indexer_k) + (row_bytes(type_v, layer.indexer_v) if layer.indexer_v else 0)
        yield Cache("indexer"), cell


class KvTable:
    """Context bytes of a model for one pair of cache types, as prefix sums over the blocks.

    Args:
        flash_attn: without it V is stored transposed and every V row is as wide as the widest block's
            (``n_embd_v_gqa_max``, src/llama-kv-cache.cpp:165-182, b11434).
        nextn: cache only the multi-token-prediction blocks (a draft context), instead of all others.
    """

    def __init__(self, model: Model, type_k: str, type_v: str, *, flash_attn: bool, nextn: bool = False) -> None:
        self.types = f"K {type_k}, V {type_v}"
        widest = max((layer.n_embd_v for layer in model.layers), default=0)
        rows: dict[Cache, list[int]] = {}
        state = [0] * model.n_layer
        for layer in model.layers:
            if layer.nextn is not nextn and layer.kind is not AttentionKind.COMPRESSED:
                continue
            n_embd_v = layer.n_embd_v if flash_attn or not layer.n_embd_v else widest
            for cache, cell in _rows(layer, type_k, type_v, n_embd_v):
                rows.setdefault(cache, [0] * model.n_layer)[layer.index] = cell
            state[layer.index] = layer.state_r + layer.state_s
        self.rows = {cache: list(accumulate(row, initial=0)) for cache, row in rows.items()}
        self.state = list(accumulate(state, initial=0))

    def terms(self, layout: Iterable[Span], shape: Shape, settings: Settings) -> dict[str, tuple[Term, ...]]:
        """Terms per device. ``-nkvo`` keeps every cache and state on the host."""
        found: dict[str, list[Term]] = {}
        groups: dict[str, list[Span]] = {}
        for span in layout:
            groups.setdefault(span.device if settings.kv_offload else HOST, []).append(span)
        for device, parts in groups.items():
            terms = found.setdefault(device, [])
            for cache, sums in self.rows.items():
                cell = sum(sums[span.stop] - sums[span.start] for span in parts)
                if cell:
                    cells, streams = cache.cells(shape, settings), cache.streams(shape)
                    detail = f"{count(cell)} B per cell ({self.types}) x {count(cells)} cells x {streams} streams"
                    terms.append(Term(f"KV {cache.name}", cell * cells * streams, Source.DERIVED, detail))
            state = sum(self.state[span.stop] - self.state[span.start] for span in parts)
            if state:
                terms.append(_state(state, shape))
        return {device: tuple(terms) for device, terms in found.items() if terms}

    def block_bytes(self, shape: Shape, settings: Settings) -> list[int]:
        """Caches and state of every block."""
        copies = 4 * shape.n_seq * (1 + shape.n_rollback)
        found = [copies * (stop - start) for start, stop in pairwise(self.state)]
        for cache, sums in self.rows.items():
            cells = cache.cells(shape, settings) * cache.streams(shape)
            found = [n + cells * (stop - start) for n, (start, stop) in zip(found, pairwise(sums), strict=True)]
        return found

    def rewindless_bytes(self, shape: Shape, settings: Settings) -> int:
        """Bytes of recurrent state and sliding caches of all slots: what a checkpoint must keep."""
        windows = sum(
            sums[-1] * cache.cells(shape, settings) * cache.streams(shape)
            for cache, sums in self.rows.items()
            if cache.window and not settings.swa_full
        )
        return 4 * self.state[-1] * shape.n_seq + windows


def _state(n_elements: int, shape: Shape) -> Term:
    """f32 state per sequence and rollback copy (src/llama-memory-recurrent.cpp:101-113, b11434)."""
    n_bytes = 4 * n_elements * shape.n_seq * (1 + shape.n_rollback)
    each = units.counted(shape.n_seq, "sequence"), units.counted(1 + shape.n_rollback, "copy", "copies")
    detail = f"4 B x {count(n_elements)} elements x {' x '.join(each)}"
    return Term("recurrent state", n_bytes, Source.DERIVED, detail)
