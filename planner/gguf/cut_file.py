"""Writes a cut: the first N blocks of a model as a GGUF of its own, tensors copied byte for byte.

Everything else of the header is kept as it is, the vocabulary included. Changed are the block count, per-layer
arrays, counts that run from the last block, and the keys of split files.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from planner.errors import CutError
from planner.facts.model import Model
from planner.gguf.ggml_types import GGML_TYPES
from planner.gguf.http_source import is_url
from planner.gguf.reader import Array, Header
from planner.gguf.roles import layer_of
from planner.gguf.shards import ModelFiles, read_model
from planner.gguf.tensor_table import TensorInfo, padded

FROM_THE_END: Final = ("nextn_predict_layers", "attention.shared_kv_layers")
"""Counts of last blocks: a prefix has none of them."""
NOT_PER_LAYER: Final = ("rope.dimension_sections", "ple.", "ngram.")
"""Arrays that may happen to be as long as there are blocks (``get_arr`` calls in src/models/*.cpp, b11434)."""
SPLIT_KEYS: Final = ("split.no", "split.count", "split.tensors.count")
_CHUNK: Final = 16 << 20
_TYPE_NUMBERS: Final = {kind.name: number for number, kind in GGML_TYPES.items()}
_FORMATS: Final = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))


@dataclass(frozen=True, slots=True)
class _Part:
    """A tensor and where its bytes lie."""

    info: TensorInfo
    path: str
    offset: int


class Cutter:
    """Cuts of one model.

    Raises:
        CutError: the model is not a local file, or does not store the blocks that run.
        ModelFileError: the files cannot be read.
    """

    def __init__(self, model: Model) -> None:
        if is_url(model.path):
            raise CutError(model.path, expected="a local file", found="an address")
        self._model = model
        self._files: ModelFiles = read_model(model.path)
        self._header: Header = self._files.headers[0]
        if self._header.metadata.get(f"{model.arch}.block_count") != model.n_layer:
            raise CutError(model.path, found="blocks that run more than once: no prefix is a model")
        alignment = self._header.metadata.get("general.alignment", 32)
        self._alignment = alignment if isinstance(alignment, int) else 32

    def write(self, depth: int, path: str, late: Callable[[], bool] = lambda: False) -> int:
        """Write the first ``depth`` blocks; returns the bytes written.

        Args:
            late: asked every 16 MiB; True gives up.

        Raises:
            CutError: the file is hollow where it should hold weights, the disk is full, or it is late.
        """
        parts = self._parts(depth)
        _check_filled(parts)
        try:
            with open(path, "wb") as out:
                written = out.write(self._head(depth, parts))
                out.flush()
                for part in parts:
                    _copy(part, out.fileno(), late)
                    padding = padded(part.info.n_bytes, self._alignment) - part.info.n_bytes
                    os.write(out.fileno(), bytes(padding))
                    written += part.info.n_bytes + padding
        except OSError as error:
            raise CutError(path, found=error.strerror or str(error)) from error
        return written

    def _parts(self, depth: int) -> list[_Part]:
        parts = []
        for path, header in zip(self._files.paths, self._files.headers, strict=True):
            for info in header.tensors:
                layer = layer_of(info.name)
                if layer is None or layer < depth:
                    parts.append(_Part(info, path, header.data_start + info.offset))
        return parts

    def _head(self, depth: int, parts: list[_Part]) -> bytes:
        changed = {**self._changed(depth), **dict.fromkeys(SPLIT_KEYS)}
        pairs = []
        with open(self._files.paths[0], "rb") as file:
            for key, (first, end) in self._header.pairs.items():
                file.seek(first)
                raw = changed[key] if key in changed else file.read(end - first)
                if raw is not None:
                    pairs.append(raw)
        table, offset = [], 0
        for part in parts:
            table.append(_entry(part.info, offset))
            offset += padded(part.info.n_bytes, self._alignment)
        start = b"GGUF" + struct.pack("<IQQ", 3, len(parts), len(pairs))
        whole = b"".join((start, *pairs, *table))
        return whole + bytes(padded(len(whole), self._alignment) - len(whole))

    def _changed(self, depth: int) -> dict[str, bytes | None]:
        """Raw pairs that a model of ``depth`` blocks has in place of the old ones; None leaves a key out."""
        prefix = f"{self._model.arch}."
        lengths = {self._model.n_layer, self._model.n_layer - self._model.n_layer_nextn}
        changed: dict[str, bytes | None] = {}
        for key, value in self._header.metadata.items():
            name = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if name == "block_count":
                changed[key] = self._number(key, depth)
            elif name in FROM_THE_END and not isinstance(value, Array):
                changed[key] = self._number(key, 0)
            elif name == "leading_dense_block_count" and isinstance(value, int):
                changed[key] = self._number(key, min(value, depth))
            elif isinstance(value, Array) and value.length in lengths and not name.startswith(NOT_PER_LAYER):
                changed[key] = self._shortened(key, value, depth)
        return changed

    def _raw(self, key: str) -> bytes:
        first, end = self._header.pairs[key]
        with open(self._files.paths[0], "rb") as file:
            file.seek(first)
            return file.read(end - first)

    def _number(self, key: str, value: int) -> bytes:
        """The pair with another value of the same type."""
        raw = self._raw(key)
        head = 8 + len(key.encode())
        (kind,) = struct.unpack_from("<I", raw, head)
        return raw[: head + 4] + struct.pack(f"<{_FORMATS[kind]}", value)

    def _shortened(self, key: str, array: Array, depth: int) -> bytes:
        """The pair with the first ``depth`` entries; an array of strings stays whole."""
        raw = self._raw(key)
        if array.values is None:
            return raw
        head = 8 + len(key.encode()) + 4
        (kind,) = struct.unpack_from("<I", raw, head)
        item = struct.calcsize(f"<{_FORMATS[kind]}")
        kept = min(depth, array.length)
        return raw[: head + 4] + struct.pack("<Q", kept) + raw[head + 12 : head + 12 + kept * item]


def _entry(info: TensorInfo, offset: int) -> bytes:
    name = info.name.encode()
    dims = struct.pack(f"<I{len(info.shape)}Q", len(info.shape), *info.shape)
    return struct.pack("<Q", len(name)) + name + dims + struct.pack("<IQ", _TYPE_NUMBERS[info.type], offset)


def _check_filled(parts: list[_Part]) -> None:
    """A sparse file reads as zeros there, and zeros say nothing about speed."""
    if not hasattr(os, "SEEK_HOLE"):
        return
    for path in {part.path for part in parts}:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            for part in parts:
                end = part.offset + part.info.n_bytes
                if part.path == path and os.lseek(descriptor, part.offset, os.SEEK_HOLE) < end:
                    raise CutError(path, expected="weights", found=f"a hole in the file at {part.info.name}")
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise CutError(path, found=error.strerror or str(error)) from error
        finally:
            os.close(descriptor)


def _copy(part: _Part, out: int, late: Callable[[], bool]) -> None:
    """Append the bytes of a tensor, inside the kernel where it can."""
    source = os.open(part.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        done, inside = 0, hasattr(os, "copy_file_range")
        while done < part.info.n_bytes:
            if late():
                raise CutError(part.path, found="copying its layers takes longer than there is time")
            wanted = min(part.info.n_bytes - done, _CHUNK)
            if inside:
                try:
                    n = os.copy_file_range(source, out, wanted, part.offset + done)
                except OSError as error:
                    if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
                        raise
                    inside = False
                    continue
            else:
                os.lseek(source, part.offset + done, os.SEEK_SET)
                n = os.write(out, os.read(source, wanted))
            if n == 0:
                raise CutError(part.path, expected=f"all of {part.info.name}", found="the end of the file")
            done += n
    finally:
        os.close(source)
