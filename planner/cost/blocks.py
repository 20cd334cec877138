"""Blocks as the graph sees them, and where they are.

Which parts a block has is read from its tensors, not from the architecture's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

from planner.facts.model import AttentionKind, Layer

ROW_PADDING: Final = 512
"""Elements (``MATRIX_ROW_PADDING``)."""

PLAIN_TYPES: Final = ("F32", "F16", "BF16", "I32")
"""Types that are not quantised."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block as the graph sees it; shapes, bytes and types by tensor name without ``blk.N.`` and ``.weight``."""

    layer: Layer
    shapes: dict[str, tuple[int, ...]]
    sizes: dict[str, int]
    types: dict[str, str]

    @property
    def pool(self) -> int:
        """Cells that the block's indexer scores together; 0 without such an indexer."""
        pooled = self.layer.kind is not AttentionKind.COMPRESSED and self.layer.indexer_k > 0
        return self.layer.compress_ratio if pooled else 0

    def padding(self, name: str) -> int:
        """Bytes that CUDA adds to a quantised tensor whose rows are not whole multiples of 512 elements
        (``ggml_backend_cuda_buffer_type_get_alloc_size``, ggml/src/ggml-cuda/ggml-cuda.cu, b11434)."""
        shape = self.shapes[name]
        short = -shape[0] % ROW_PADDING
        return short * self.sizes[name] // prod(shape) if short and self.types[name] not in PLAIN_TYPES else 0

    def width(self, name: str) -> int:
        """Output width of a matrix, 0 without it."""
        shape = self.shapes.get(name)
        return shape[1] if shape and len(shape) > 1 else 0


class Place(NamedTuple):
    """Where one block is.

    Args:
        device: of its weights, but for ``elsewhere``: ``(tensor name, device)``.
        cache: device of its cache or state.
    """

    device: str
    cache: str
    elsewhere: tuple[tuple[str, str], ...] = ()
