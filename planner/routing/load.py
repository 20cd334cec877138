"""A routing file → a recording of this model: which of the forms it is, the file decides."""

from __future__ import annotations

from typing import Final

from planner.errors import RoutingFileError
from planner.facts.model import Model
from planner.facts.routing import Routing
from planner.files import bytes_of
from planner.gguf.imatrix import read_counts
from planner.gguf.names import printable
from planner.routing.selections import phase_of_counts
from planner.routing.shape import checked, shape_of

MOST_FILE_BYTES: Final = 256 << 20
"""What a stored recording may be unpacked, too; a text may be shorter only."""
_HEAD: Final = 8


def load(path: str, model: Model) -> Routing:
    """Read an imatrix GGUF, a route trace (CSV or .npz) or what ``moeplan routing`` wrote.

    Raises:
        RoutingFileError: none of them, or of another model.
        ModelFileError: a GGUF that is not sound.
    """
    shape, subject = shape_of(model), printable(path, 400)
    head = bytes_of(path, RoutingFileError, _HEAD, cut=True)
    if head.startswith(b"GGUF"):
        return checked(_imatrix(path, subject, shape.n_used), shape)
    if _legacy(head):
        raise RoutingFileError(
            subject,
            expected="counts per expert",
            found="a legacy imatrix (.dat), which holds one count per tensor",
            advice="make it again with --output-format gguf, or capture with: moeplan routing MODEL",
        )
    data = bytes_of(path, RoutingFileError, MOST_FILE_BYTES)
    if head.startswith(b"PK\x03\x04"):
        from planner.routing import stored

        return checked(stored.parse(data, subject, shape), shape)
    from planner.routing import trace_csv

    return checked(trace_csv.parse(data, subject, shape.n_expert), shape)


def _legacy(head: bytes) -> bool:
    """It begins with the number of entries and the length of the first name, 32 bits each (imatrix.cpp, b11312)."""
    entries, name = int.from_bytes(head[:4], "little"), int.from_bytes(head[4:8], "little")
    return len(head) == _HEAD and 0 < entries < 1 << 16 and 0 < name < 256 and 0 in head


def _imatrix(path: str, subject: str, n_used: int) -> Routing:
    counts = read_counts(path)
    layers = tuple(block for block, _ in counts.layers)
    rows = tuple(row for _, row in counts.layers)
    sizes = {len(row) for row in rows}
    if len(sizes) != 1 or not any(map(sum, rows)):
        raise RoutingFileError(subject, expected="as many experts in every layer, and counts", found="others")
    chunks = f", {counts.n_chunks} chunks of {counts.chunk_tokens}" if counts.n_chunks and counts.chunk_tokens else ""
    prefill = phase_of_counts(rows, n_used)
    return Routing(subject, f"imatrix{chunks}", layers, sizes.pop(), n_used, prefill, None)
