"""Recordings as files of ours: ``.npz`` with uint16 sequences, and the same without our keys as others publish them.

Keys: ``decode`` and ``prefill`` ``[token, layer row, slot]`` (65535: not routed) or ``decode_counts`` and
``prefill_counts`` ``[layer row, expert]``; of ours also ``schema``, ``layers``, ``n_expert``, ``n_used``, ``method``,
``text`` and ``fingerprint``. Other keys are passed over.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, Final

from planner.errors import RoutingFileError
from planner.facts.routing import NOT_ROUTED, Phase, Routing
from planner.routing.selections import counts_of, phase_of, phase_of_counts, sequence_of

if TYPE_CHECKING:
    import numpy as np

    from planner.routing.shape import Shape

SCHEMA: Final = "moeplan.routing/1"
MOST_BYTES: Final = 1 << 30
"""Of all arrays together, unpacked: 200,000 tokens of the widest models."""
_NUMBERS: Final = ("decode", "prefill", "decode_counts", "prefill_counts", "layers", "n_expert", "n_used")
_WORDS: Final = ("schema", "method", "text", "fingerprint")
_LONGEST_WORDS: Final = 4096


def dump(routing: Routing) -> bytes:
    """The recording as a file."""
    import numpy as np

    arrays: dict[str, Any] = {
        "schema": SCHEMA,
        "layers": np.array(routing.layers, np.uint16),
        "n_expert": np.array(routing.n_expert),
        "n_used": np.array(routing.n_used),
        "method": routing.method[:_LONGEST_WORDS],
        "text": routing.text[:_LONGEST_WORDS],
        "fingerprint": routing.fingerprint,
    }
    for name, phase in (("decode", routing.decode), ("prefill", routing.prefill)):
        if phase is not None and phase.sequence is not None:
            arrays[name] = sequence_of(phase, routing.n_used)
        elif phase is not None:
            arrays[f"{name}_counts"] = counts_of(phase)
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def parse(data: bytes, subject: str, shape: Shape) -> Routing:
    """A file as a recording.

    Args:
        shape: of the model; what a file of others does not say is taken from it.

    Raises:
        RoutingFileError: no such file, arrays of another shape, or more than ``MOST_BYTES``.
    """
    found = _arrays(data, subject)
    if found.get("schema", SCHEMA) != SCHEMA:
        raise RoutingFileError(subject, expected=SCHEMA, found=str(found["schema"])[:80])
    n_expert = _one(found, "n_expert", shape.n_expert)
    phases = {
        name: _phase(found, name, n_expert, _one(found, "n_used", shape.n_used)) for name in ("decode", "prefill")
    }
    known = [phase for phase, _ in phases.values() if phase is not None]
    if not known:
        raise RoutingFileError(subject, expected="decode or prefill selections", found="neither")
    rows, used = {len(phase.counts) for phase in known}, {n for phase, n in phases.values() if phase is not None}
    layers = tuple(int(n) for n in found["layers"].ravel()) if "layers" in found else shape.layers
    if rows != {len(layers)}:
        words = " and ".join(map(str, sorted(rows)))
        raise RoutingFileError(subject, expected=f"{len(layers)} layers with experts", found=words)
    if len(used) != 1 or any(len(row) != n_expert for phase in known for row in phase.counts):
        raise RoutingFileError(subject, expected=f"the same selections per token, of {n_expert}", found="others")
    return Routing(
        source=subject,
        method=found.get("method", "route trace"),
        layers=layers,
        n_expert=n_expert,
        n_used=used.pop(),
        prefill=phases["prefill"][0],
        decode=phases["decode"][0],
        fingerprint=found.get("fingerprint", ""),
        text=found.get("text", ""),
    )


def _phase(found: dict[str, Any], name: str, n_expert: int, n_used: int) -> tuple[Phase | None, int]:
    """The phase and its selections per token."""
    sequence, counts = found.get(name), found.get(f"{name}_counts")
    if sequence is not None and sequence.ndim == 3 and sequence.size:
        routed = sequence[sequence != NOT_ROUTED]
        if routed.size and int(routed.min()) >= 0 and int(routed.max()) < n_expert:
            return phase_of(sequence, n_expert), sequence.shape[2]
    # selections per token and layer, or already summed over the tokens
    summed = counts if counts is not None else sequence if sequence is not None and sequence.ndim == 2 else None
    if summed is not None and summed.ndim == 2 and summed.size and int(summed.min()) >= 0 and n_used > 0:
        rows = tuple(tuple(int(n) for n in row) for row in summed)
        return phase_of_counts(rows, n_used), n_used
    return None, 0


def _one(found: dict[str, Any], name: str, otherwise: int) -> int:
    value = found.get(name)
    return otherwise if value is None or value.size != 1 else int(value.ravel()[0])


def _arrays(data: bytes, subject: str) -> dict[str, Any]:
    """Known arrays and words, each checked before it is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [info for info in archive.infolist() if info.filename.removesuffix(".npy") in _NUMBERS + _WORDS]
            if len({info.filename for info in entries}) != len(entries):
                raise ValueError("a key twice")
            if sum(info.file_size for info in entries) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES} bytes")
            return {info.filename.removesuffix(".npy"): _array(archive, info) for info in entries}
    except (
        zipfile.BadZipFile,
        zlib.error,
        ValueError,
        EOFError,
        RuntimeError,
        SyntaxError,
    ) as error:
        expected = "an .npz of route sequences or counts"
        raise RoutingFileError(subject, expected=expected, found=str(error)[:200] or "something else") from None


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray | str:
    from math import prod

    import numpy as np

    name = info.filename.removesuffix(".npy")
    file = io.BytesIO(archive.read(info))
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"{name} in format {version}")
    shape, by_column, kind = np.lib.format.read_array_header_1_0(file)
    n_bytes = prod(shape) * kind.itemsize
    if by_column or kind.kind not in "uiU" or len(shape) > 3 or not 0 <= n_bytes <= info.file_size:
        raise ValueError(f"{name} as {kind} {shape}")
    raw = file.read(n_bytes)
    if len(raw) != n_bytes:
        raise ValueError(f"{name} is cut off")
    found = np.frombuffer(raw, kind).reshape(shape)
    if (name in _WORDS) != (kind.kind == "U") or (name in _WORDS and (found.size != 1 or n_bytes > 4 * _LONGEST_WORDS)):
        raise ValueError(f"{name} as {kind} {shape}")
    return str(found.ravel()[0]) if name in _WORDS else found
