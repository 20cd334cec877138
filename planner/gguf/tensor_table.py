"""The tensor table of a GGUF header: names, shapes, types and offsets, each checked as llama.cpp does."""

from __future__ import annotations

import struct
from math import prod
from typing import Final, NamedTuple

from planner.errors import ModelFileError
from planner.gguf.cursor import Cursor
from planner.gguf.ggml_types import GGML_TYPES, REMOVED_TYPES, GgmlType
from planner.gguf.names import checked_name

MAX_NAME: Final = 63
"""``GGML_MAX_NAME`` - 1, ggml/include/ggml.h."""
MAX_DIMS: Final = 4
_DIMS: Final = tuple(struct.Struct(f"<{n}Q") for n in range(MAX_DIMS + 1))
_LARGEST: Final = (1 << 63) - 1


class TensorInfo(NamedTuple):
    """One entry: ``shape`` has ne0 first, ``offset`` counts from the start of the tensor data."""

    name: str
    type: str
    shape: tuple[int, ...]
    n_bytes: int
    offset: int


def padded(n: int, alignment: int) -> int:
    """``n`` rounded up to the alignment (a power of two)."""
    return (n + alignment - 1) & ~(alignment - 1)


def data_start(header_end: int, alignment: int) -> int:
    """Where tensor data begin in the file."""
    return padded(header_end, alignment)


def read_tensors(cursor: Cursor, count: int, alignment: int) -> tuple[TensorInfo, ...]:
    """Read ``count`` entries.

    Each tensor must begin where the padded one before it ends (ggml/src/gguf.cpp, b11434), so offsets are
    aligned and data neither overlap nor leave holes.

    Raises:
        ModelFileError: a name twice, a bad shape, an unknown type, an offset out of place.
    """
    tensors: list[TensorInfo] = []
    seen: set[str] = set()
    expected = 0
    for _ in range(count):
        tensor = _entry(cursor)
        if tensor.name in seen:
            raise ModelFileError(cursor.subject, expected="every tensor once", found=f"{tensor.name} twice")
        if tensor.offset != expected:
            raise ModelFileError(
                cursor.subject,
                expected=f"data of {tensor.name} at offset {expected:,}, right after the tensor before it",
                found=f"offset {tensor.offset:,}",
            )
        seen.add(tensor.name)
        tensors.append(tensor)
        expected += padded(tensor.n_bytes, alignment)
    return tuple(tensors)


def _entry(cursor: Cursor) -> TensorInfo:
    raw = cursor.string(MAX_NAME, "a tensor name")
    if raw is None:
        raise ModelFileError(cursor.subject, expected=f"tensor names of at most {MAX_NAME} bytes", found="a longer one")
    name = checked_name(raw, cursor.subject, "tensor name")
    n_dims = cursor.u32(name)
    if not 1 <= n_dims <= MAX_DIMS:
        raise ModelFileError(cursor.subject, expected=f"1 to {MAX_DIMS} dimensions of {name}", found=f"{n_dims:,}")
    shape = tuple(int(n) for n in cursor.unpack(_DIMS[n_dims], name))
    kind = _type(cursor.u32(name), name, cursor.subject)
    n_bytes = _bytes(shape, kind, name, cursor.subject)
    return TensorInfo(name, kind.name, shape, n_bytes, cursor.u64(name))


def _type(number: int, name: str, subject: str) -> GgmlType:
    kind = GGML_TYPES.get(number)
    if kind is None:
        found = "removed from llama.cpp" if number in REMOVED_TYPES else "unknown"
        raise ModelFileError(subject, expected=f"a ggml type for {name}", found=f"type {number}, which is {found}")
    return kind


def _bytes(shape: tuple[int, ...], kind: GgmlType, name: str, subject: str) -> int:
    elements = prod(shape)
    if elements == 0:
        raise ModelFileError(subject, expected=f"no empty dimension of {name}", found=_shown(shape))
    n_bytes = elements // kind.block * kind.n_bytes
    if elements > _LARGEST or n_bytes > _LARGEST:
        raise ModelFileError(subject, expected=f"fewer than 2^63 elements and bytes of {name}", found=_shown(shape))
    if shape[0] % kind.block:
        raise ModelFileError(
            subject, expected=f"rows of {name} in blocks of {kind.block} ({kind.name})", found=f"{shape[0]:,} elements"
        )
    return n_bytes


def _shown(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{n:,}" for n in shape)
