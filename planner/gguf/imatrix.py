"""The routing counts in an importance matrix: a GGUF of ``general.type`` ``imatrix``.

llama-imatrix writes per expert tensor ``<tensor>.in_sum2`` and ``<tensor>.counts`` (f32 ``[1, n_expert]``); the counts
are exact numbers of (token, slot) selections, the same for gate, up and down (tools/imatrix/imatrix.cpp, b11312).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

from planner.errors import ModelFileError, RoutingFileError
from planner.gguf.names import printable
from planner.gguf.reader import Header, read_header
from planner.gguf.source import FileSource
from planner.gguf.tensor_table import TensorInfo

EXACT: Final = 1 << 24
"""Whole numbers that f32 holds exactly."""
MOST_EXPERTS: Final = 1 << 14
_COUNTS: Final = re.compile(r"blk\.(\d{1,4})\.ffn_(?:gate|up|down|gate_up)_(?:ch)?exps\.weight\.counts", re.ASCII)


@dataclass(frozen=True, slots=True)
class Counts:
    """``(block, selections per expert)``, blocks ascending; what the matrix says of itself."""

    layers: tuple[tuple[int, tuple[int, ...]], ...]
    n_chunks: int | None
    chunk_tokens: int | None


def read_counts(path: str) -> Counts:
    """Counts of every layer with routed experts.

    Raises:
        RoutingFileError: no importance matrix, none of a mixture of experts, or matrices of a layer that disagree.
        ModelFileError: no sound GGUF.
    """
    source = FileSource(path)
    try:
        header = read_header(source)
        if header.metadata.get("general.type") != "imatrix":
            what = header.metadata.get("general.architecture")
            found = f"a model ({printable(what)})" if isinstance(what, str) else "a GGUF of another type"
            raise RoutingFileError(header.subject, expected="an importance matrix", found=found)
        found_layers = _layers(source, header)
    finally:
        source.close()
    if not found_layers:
        raise RoutingFileError(
            header.subject, expected="counts of routed experts (blk.N.ffn_*_exps.weight.counts)", found="none"
        )
    return Counts(
        tuple(sorted(found_layers.items())),
        _whole(header, "imatrix.chunk_count"),
        _whole(header, "imatrix.chunk_size"),
    )


def _layers(source: FileSource, header: Header) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for tensor in header.tensors:
        match = _COUNTS.fullmatch(tensor.name)
        if match is None:
            continue
        block, counts = int(match[1]), _values(source, header, tensor)
        if found.setdefault(block, counts) != counts:
            raise RoutingFileError(
                header.subject, expected=f"the same counts for every matrix of block {block}", found="others"
            )
    return found


def _values(source: FileSource, header: Header, tensor: TensorInfo) -> tuple[int, ...]:
    n = tensor.shape[1] if len(tensor.shape) > 1 else 0
    if tensor.type != "F32" or tensor.shape[0] != 1 or not 0 < n <= MOST_EXPERTS or tensor.n_bytes != 4 * n:
        raise RoutingFileError(
            header.subject, expected=f"{tensor.name} as f32 [1, experts]", found=f"{tensor.type} {list(tensor.shape)}"
        )
    raw = source.read_at(header.data_start + tensor.offset, tensor.n_bytes)
    if len(raw) != tensor.n_bytes:
        raise ModelFileError(header.subject, expected=f"{tensor.n_bytes} bytes of {tensor.name}", found=str(len(raw)))
    values = struct.unpack(f"<{n}f", raw)
    if not all(0 <= value <= EXACT and value == int(value) for value in values if value == value) or any(
        value != value for value in values
    ):
        raise RoutingFileError(
            header.subject, expected=f"whole numbers up to 2^24 in {tensor.name}", found="something else"
        )
    return tuple(int(value) for value in values)


def _whole(header: Header, key: str) -> int | None:
    value = header.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
