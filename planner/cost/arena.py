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

    def take(self, size: int) -> int:
        """Address of a new block of ``size`` bytes."""
        size = -(-size // self._alignment) * self._alignment
        offsets, sizes = self._offsets, self._sizes
        best, best_size = len(sizes) - 1, _ENDLESS
        for i, room in enumerate(sizes[:-1]):
            if size <= room <= best_size:
                best, best_size = i, room
        offset = offsets[best]
        if sizes[best] == size:
            del offsets[best], sizes[best]
        else:
            offsets[best] = offset + size
            sizes[best] -= size
        if offset + size > self.peak:
            self.peak = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Free a block and merge it with the first neighbour in order, and that with the next one.

        An empty tensor leaves an empty block where its address lies inside a live one. Such a block keeps later
        blocks from merging, and llama.cpp's buffers grow by that.
        """
        size = -(-size // self._alignment) * self._alignment
        offsets, sizes = self._offsets, self._sizes
        end, place = offset + size, 0
        for i, start in enumerate(offsets):
            if start + sizes[i] == offset:
                sizes[i] += size
                if i + 1 < len(offsets) and offsets[i + 1] == end:
                    sizes[i] += sizes[i + 1]
                    del offsets[i + 1], sizes[i + 1]
                return
            if start == end:
                offsets[i], sizes[i] = offset, sizes[i] + size
                if i and offsets[i - 1] + sizes[i - 1] == offset:
                    sizes[i - 1] += sizes[i]
                    del offsets[i], sizes[i]
                return
            place += start < offset
        offsets.insert(place, offset)
        sizes.insert(place, size)
