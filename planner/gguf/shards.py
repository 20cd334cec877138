"""One model in several files: find the shards from any of them, and check that they belong together.

Names as ``llama_split_path`` in src/llama.cpp makes them, keys as src/llama-model-loader.cpp checks them, b11434.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from planner.errors import ModelFileError
from planner.gguf.http_source import HttpSource, is_url
from planner.gguf.names import quoted
from planner.gguf.reader import Header, read_header
from planner.gguf.source import ByteSource, FileSource
from planner.gguf.tensor_table import TensorInfo

MAX_SHARDS: Final = 1024
_NAME: Final = re.compile(r"(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


class ModelFiles(NamedTuple):
    """All files of one model, in order; the first one carries the metadata."""

    paths: tuple[str, ...]
    headers: tuple[Header, ...]

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return tuple(t for header in self.headers for t in header.tensors)


def read_model(path: str) -> ModelFiles:
    """Read the model that ``path`` (a file, any shard, or a URL) belongs to.

    Raises:
        ModelFileError: a file that cannot be read, a missing shard, shards that do not fit together.
    """
    header = _read(path)
    folder, name, query = _parts(path)
    match = _NAME.fullmatch(name)
    declared = _number(header, "split.count") or 0
    named = int(match["count"]) if match else 0
    if declared <= 1 and named <= 1:
        return ModelFiles((path,), (header,))
    if match is None:
        raise ModelFileError(
            header.subject,
            expected=f"a name like model-00001-of-{declared:05d}.gguf: this is one of {declared} shards",
            found=quoted(name),
            advice="give all shards their original names",
        )
    own = int(match["no"]) - 1
    if not 0 <= own < named <= MAX_SHARDS:
        raise ModelFileError(
            header.subject,
            expected=f"a shard number within its count, and at most {MAX_SHARDS} shards",
            found=f"shard {own + 1} of {named}",
        )
    stem = folder + match["stem"]
    paths = tuple(f"{stem}-{no:05d}-of-{named:05d}.gguf{query}" for no in range(1, named + 1))
    headers = tuple(header if no == own else _shard(p, no, paths) for no, p in enumerate(paths))
    files = ModelFiles(paths, headers)
    _check(files)
    return files


def _read(path: str) -> Header:
    source: ByteSource = HttpSource(path) if is_url(path) else FileSource(path)
    try:
        return read_header(source)
    finally:
        source.close()


def _parts(path: str) -> tuple[str, str, str]:
    """(folder with its separator, file name, query of a URL): shards differ in the file name alone."""
    path, mark, query = path.partition("?") if is_url(path) else (path, "", "")
    cut = len(path) - len(os.path.basename(path))
    return path[:cut], path[cut:], mark + query


def _shard(path: str, no: int, paths: tuple[str, ...]) -> Header:
    try:
        return _read(path)
    except ModelFileError as error:
        raise ModelFileError(
            error.subject,
            expected=f"shard {no + 1} of {len(paths)}",
            found=error.found,
            advice=error.advice if error.advice != "check the path" else "put all shards in one folder",
        ) from None


def _number(header: Header, key: str) -> int | None:
    value = header.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _check(files: ModelFiles) -> None:
    count = len(files.paths)
    for no, header in enumerate(files.headers):
        found = (_number(header, "split.no"), _number(header, "split.count"))
        if found != (no, count):
            raise ModelFileError(
                header.subject,
                expected=f"split.no {no} and split.count {count}, as its name says",
                found=f"{_show(found[0])} and {_show(found[1])}",
                advice="give all shards their original names",
            )
    tensors = files.tensors
    first = files.headers[0]
    total = _number(first, "split.tensors.count")
    if total != len(tensors):
        raise ModelFileError(
            first.subject, expected=f"{_show(total)} tensors in {count} shards", found=f"{len(tensors):,}"
        )
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise ModelFileError(first.subject, expected="every tensor in one shard", found=f"{tensor.name} in two")
        seen.add(tensor.name)


def _show(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"
