"""Row sizes of KV types (ggml/src/ggml-common.h)."""

from __future__ import annotations

import pytest

from planner.cost.kv_types import is_quantised, row_bytes
from planner.errors import OptionError


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("f32", 512), ("f16", 256), ("bf16", 256), ("q8_0", 136), ("q5_1", 96), ("q5_0", 88), ("q4_1", 80), ("q4_0", 72)],
)
def test_bytes_of_128_elements(kind: str, expected: int) -> None:
    assert row_bytes(kind, 128) == expected


def test_only_block_types_are_quantised() -> None:
    assert is_quantised("q8_0") and not is_quantised("bf16")


def test_unknown_types_and_broken_blocks_are_errors() -> None:
    with pytest.raises(OptionError, match="KV cache type"):
        row_bytes("q3_K", 128)
    with pytest.raises(OptionError, match="multiple of 32"):
        row_bytes("q8_0", 100)
