"""Bytes of ggml row types that a KV cache may have."""

from __future__ import annotations

from typing import Final

from planner.errors import OptionError

BLOCK: Final[dict[str, tuple[int, int]]] = {
    "f32": (1, 4), "f16": (1, 2), "bf16": (1, 2),
    "q8_0": (32, 34), "q5_1": (32, 24), "q5_0": (32, 22), "q4_1": (32, 20), "q4_0": (32, 18), "iq4_nl": (32, 18),
}  # fmt: skip
"""Type → elements and bytes of a block (ggml/src/ggml-common.h); the types that ``-ctk`` takes
(common/arg.cpp, b11434)."""


def is_quantised(kind: str) -> bool:
    return BLOCK[kind][0] > 1


def row_bytes(kind: str, n_elements: int) -> int:
    """Bytes of one cached row.

    Raises:
        OptionError: a type that a cache cannot have, or a row that is not whole blocks.
    """
    if kind not in BLOCK:
        raise OptionError("KV cache type", expected=" ".join(BLOCK), found=repr(kind))
    n_block, n_bytes = BLOCK[kind]
    if n_elements % n_block:
        raise OptionError(
            f"KV cache type {kind}",
            expected=f"rows of a multiple of {n_block} elements",
            found=f"a row of {n_elements}",
            advice="use f16",
        )
    return n_elements // n_block * n_bytes
