"""Type sizes against the gguf package."""

from __future__ import annotations

import gguf

from planner.gguf.ggml_types import GGML_TYPES, REMOVED_TYPES

Q8_1 = gguf.GGMLQuantizationType.Q8_1
"""The package says 40 bytes; ggml/src/ggml-common.h asserts two halves and 32 int8, 36 (b11434)."""


def test_sizes_match_the_gguf_package() -> None:
    for kind, (block, n_bytes) in gguf.GGML_QUANT_SIZES.items():
        ours = GGML_TYPES[kind.value]
        assert (ours.name, ours.block) == (kind.name, block)
        assert ours.n_bytes == (36 if kind is Q8_1 else n_bytes)


def test_removed_types_have_no_size() -> None:
    assert not REMOVED_TYPES & GGML_TYPES.keys()
