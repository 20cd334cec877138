"""Our own streaming reader of a GGUF header: versions 2 and 3, little endian.

The stock reader makes an object of every vocabulary string; this one passes over them. Format and limits follow
``gguf_init_from_reader`` in ggml/src/gguf.cpp, llama.cpp b11434: what it refuses is refused here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planner.errors import ModelFileError
from planner.gguf.cursor import CUT, Cursor
from planner.gguf.names import checked_name, checked_utf8, printable, quoted
from planner.gguf.source import ByteSource
from planner.gguf.tensor_table import TensorInfo, data_start, read_tensors

STRING_KEPT: Final = 64 << 10
"""Longer strings (chat templates, tokenizer files) are passed over."""
ARRAY_KEPT: Final = 4096
"""Longer arrays are passed over; llama.cpp has no per-layer array over 512 entries."""
KEY_CAP: Final = 1024
COUNT_CAP: Final = 1 << 15
"""Most keys, and most tensors, in one file. The largest models hold about 2,000 tensors."""
_SMALLEST_KEY, _SMALLEST_TENSOR = 8 + 1 + 4 + 1, 8 + 1 + 4 + 8 + 4 + 8
_STRING, _ARRAY = 8, 9
_SCALARS: Final = {
    kind: struct.Struct(f"<{letter}") for kind, letter in zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True)
}


@dataclass(frozen=True, slots=True)
class Array:
    """``values`` is None where only the length was kept (strings, or more than 4096 numbers)."""

    length: int
    values: tuple[int | float | bool, ...] | None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A string longer than 64 KiB."""


Value = int | float | bool | str | Array | Skipped


@dataclass(frozen=True, slots=True)
class Header:
    """One file.

    Args:
        subject: path or URL, safe to print.
        file_bytes: length of the file.
        digest: SHA-256 of the header, without the contents of skipped values.
        pairs: where each key lies in the file with its value: ``(first byte, byte after it)``.
        data_start: first byte of tensor data.
    """

    subject: str
    metadata: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]
    file_bytes: int
    digest: str
    pairs: Mapping[str, tuple[int, int]]
    data_start: int


def read_header(source: ByteSource) -> Header:
    """Parse and check one file; tensor data is checked by length, not read.

    Raises:
        ModelFileError: anything llama.cpp would refuse, and headers over the limits above.
    """
    cursor = Cursor(source)
    n_tensors, n_keys = _preamble(cursor, source.size)
    metadata: dict[str, Value] = {}
    pairs: dict[str, tuple[int, int]] = {}
    for _ in range(n_keys):
        first = cursor.offset
        key, value = _pair(cursor)
        if key in metadata:
            raise ModelFileError(cursor.subject, expected="every key once", found=f"{key} twice")
        metadata[key], pairs[key] = value, (first, cursor.offset)
    alignment = _alignment(metadata, cursor.subject)
    tensors = read_tensors(cursor, n_tensors, alignment)
    start = data_start(cursor.offset, alignment)
    _check_length(tensors, start, source)
    return Header(source.subject, metadata, tensors, source.size, cursor.digest(), pairs, start)


def _preamble(cursor: Cursor, size: int) -> tuple[int, int]:
    """(tensors, keys)"""
    subject = cursor.subject
    if size == 0:
        raise ModelFileError(subject, expected="a GGUF file", found="an empty file")
    magic = cursor.take(4, "the magic number")
    if magic != b"GGUF":
        found = f"a file that begins with {quoted(magic)}"
        raise ModelFileError(subject, expected="a GGUF file (it begins with 'GGUF')", found=found)
    version = cursor.u32("the version")
    if version & 0xFFFF == 0 and version:
        raise ModelFileError(
            subject,
            expected="a little-endian GGUF",
            found="a big-endian one",
            advice="get the little-endian file, or convert it with gguf_convert_endian.py",
        )
    if version not in (2, 3):
        advice = "convert the model again with a current llama.cpp" if version == 1 else ""
        raise ModelFileError(subject, expected="GGUF version 2 or 3", found=f"version {version}", advice=advice)
    n_tensors, n_keys = cursor.u64("the number of tensors"), cursor.u64("the number of keys")
    for what, n, least in (("tensors", n_tensors, _SMALLEST_TENSOR), ("keys", n_keys, _SMALLEST_KEY)):
        most = min(COUNT_CAP, cursor.remaining // least)
        if n > most:
            raise ModelFileError(subject, expected=f"at most {most:,} {what} in this file", found=f"{n:,}", advice=CUT)
    return n_tensors, n_keys


def _pair(cursor: Cursor) -> tuple[str, Value]:
    raw = cursor.string(KEY_CAP, "a key")
    if raw is None:
        raise ModelFileError(cursor.subject, expected=f"keys of at most {KEY_CAP} bytes", found="a longer one")
    key = checked_name(raw, cursor.subject, "key")
    cursor.keep(200 + len(raw))
    kind = cursor.u32(f"the type of {key}")
    if kind == _STRING:
        return key, _text(cursor, key)
    if kind == _ARRAY:
        return key, _array(cursor, key)
    return key, cursor.unpack(_scalar(kind, key, cursor.subject), key)[0]


def _text(cursor: Cursor, key: str) -> str | Skipped:
    raw = cursor.string(STRING_KEPT, key)
    if raw is None:
        return Skipped()
    cursor.keep(4 * len(raw))
    return checked_utf8(raw, cursor.subject, f"the value of {key}")


def _array(cursor: Cursor, key: str) -> Array:
    kind, length = cursor.u32(f"the element type of {key}"), cursor.u64(f"the length of {key}")
    if kind == _ARRAY:
        raise ModelFileError(cursor.subject, expected=f"numbers or strings in {key}", found="arrays inside an array")
    if kind == _STRING:
        cursor.skip_strings(length, key)
        return Array(length, None)
    code = _scalar(kind, key, cursor.subject)
    if length > ARRAY_KEPT:
        cursor.skip(length * code.size, key)
        return Array(length, None)
    cursor.keep(40 * length)
    return Array(length, cursor.unpack(struct.Struct(f"<{length}{code.format[1:]}"), key))


def _scalar(kind: int, key: str, subject: str) -> struct.Struct:
    code = _SCALARS.get(kind)
    if code is None:
        raise ModelFileError(subject, expected=f"a GGUF value type (0 to 12) for {key}", found=f"type {kind}")
    return code


def _alignment(metadata: Mapping[str, Value], subject: str) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0 or value & (value - 1) or value >> 32:
        found = printable(str(value)) if isinstance(value, int | float | str) else "an array"
        raise ModelFileError(subject, expected="a power of two as general.alignment", found=found)
    return value


def _check_length(tensors: tuple[TensorInfo, ...], start: int, source: ByteSource) -> None:
    if not tensors:
        return
    last = tensors[-1]
    needed = start + last.offset + last.n_bytes
    if needed > source.size:
        raise ModelFileError(
            source.subject,
            expected=f"{needed:,} bytes by its header",
            found=f"{source.size:,}: {needed - source.size:,} bytes are missing",
            advice="the download is incomplete: resume it or download again",
        )
