"""How a GGUF is laid out for writing: key-value pairs, tensor table, padding (version 3, little-endian)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

F32: Final = 0
F16: Final = 1
"""ggml type numbers, ``ggml/include/ggml.h``."""

ALIGNMENT: Final = 32
_UINT32, _INT32, _FLOAT32, _STRING, _ARRAY = 4, 5, 6, 8, 9

Value = str | int | float | list[str] | list[int]


def pair(key: str, value: Value) -> bytes:
    """One metadata entry. Whole numbers become uint32 (int32 inside a list), fractions float32."""
    return _string(key) + _typed(value)


def header(pairs: Sequence[bytes], tensors: Sequence[tuple[str, tuple[int, ...], int, int]]) -> bytes:
    """Everything before the data, padded; tensors are ``(name, shape, type, data bytes)`` in file order."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(pairs)), *pairs]
    offset = 0
    for name, shape, ggml_type, n_bytes in tensors:
        parts.append(_string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        parts.append(struct.pack("<IQ", ggml_type, offset))
        offset += padded(n_bytes)
    whole = b"".join(parts)
    return whole + bytes(padded(len(whole)) - len(whole))


def padded(n_bytes: int) -> int:
    """``n_bytes`` rounded up to the alignment of tensor data."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _typed(value: Value) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", _FLOAT32, value)
    of_text = isinstance(value[0], str)
    items = [_string(str(v)) if of_text else struct.pack("<i", v) for v in value]
    return struct.pack("<IIQ", _ARRAY, _STRING if of_text else _INT32, len(items)) + b"".join(items)
