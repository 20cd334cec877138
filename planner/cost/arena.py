"""ggml's graph allocator, on sizes alone: which addresses are reused, and how high the buffer grows.

Mirrors ``ggml_dyn_tallocr`` and ``ggml_gallocr_alloc_graph_impl`` (ggml/src/ggml-alloc.c, b11434): best fit
over the free blocks, the last block only when nothing else fits, tensors freed after their last reader.
"""

from __future__ import annotations

from typing import Final

_ENDLESS: Final = 1 << 60


class Arena:
    """A growing buffer; addresses and sizes in bytes."""

    def __init__(self, alignment: int) -> None:
        self._alignment = alignment
        self._offsets = [0]
        self._sizes = [_ENDLESS]
        self.peak = 0

    def _aligned(self, size: int) -> int:
        return -(-size // self._alignment) * self._alignment

    def take(self, size: int) -> int:
        """Address of a new block of ``size`` bytes."""
        size = self._aligned(size)
        sizes = self._sizes
        best, best_size = len(sizes) - 1, _ENDLESS
        for i in range(len(sizes) - 1):
            if size <= sizes[i] <= best_size:
                best, best_size = i, sizes[i]
        offset = self._offsets[best]
        self._offsets[best] += size
        sizes[best] -= size
        if not sizes[best]:
            del self._offsets[best], sizes[best]
        self.peak = max(self.peak, offset + size)
        return offset

    def give(self, offset: int, size: int) -> None:
        """Free a block, merging it with its neighbours."""
        size = self._aligned(size)
        offsets, sizes = self._offsets, self._sizes
        i = 0
        while i < len(offsets) and offsets[i] < offset:
            i += 1
        joins_next = i < len(offsets) and offset + size == offsets[i]
        if i and offsets[i - 1] + sizes[i - 1] == offset:
            sizes[i - 1] += size
            if joins_next:
                sizes[i - 1] += sizes[i]
                del offsets[i], sizes[i]
        elif joins_next:
            offsets[i] = offset
            sizes[i] += size
        else:
            offsets.insert(i, offset)
            sizes.insert(i, size)
