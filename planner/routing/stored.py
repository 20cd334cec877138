"""Recordings as files of ours: ``.npz`` with uint16 sequences, and the same without our keys as others publish them.

Keys: ``decode`` and ``prefill`` ``[token, layer row, slot]`` (65535: not routed) or ``decode_counts`` and
``prefill_counts`` ``[layer row, expert]``; of ours also ``schema``, ``layers``, ``n_expert``, ``n_used``, ``method``,
``text`` and ``fingerprint``. Other keys are passed over.
"""

from __future__ import annotations

import io
from math import prod
from typing import TYPE_CHECKING, Any, Final

from planner import units
from planner.errors import RoutingFileError
from planner.facts.routing import NOT_ROUTED, Phase, Routing
from planner.gguf.names import printable
from planner.routing import npz
from planner.routing.npz import MOST_WORDS, Claim
from planner.routing.selections import counts_of, phase_of, phase_of_counts, sequence_of

if TYPE_CHECKING:
    import numpy as np

    from planner.routing.shape import Shape

SCHEMA: Final = "moeplan.routing/1"
MOST_SELECTIONS: Final = 50_000_000
"""Tokens times layers times experts per token of a sequence: 65,000 tokens of the widest models."""
MOST_COUNT: Final = 1 << 32
"""Selections of one expert: sums over all experts stay within 64 bits."""
_PHASES: Final = ("decode", "prefill")
_NUMBERS: Final = (*_PHASES, "decode_counts", "prefill_counts", "layers", "n_expert", "n_used")
_WORDS: Final = ("schema", "method", "text", "fingerprint")


def dump(routing: Routing) -> bytes:
    """The recording as a file."""
    import numpy as np

    arrays: dict[str, Any] = {
        "schema": SCHEMA,
        "layers": np.array(routing.layers, np.uint16),
        "n_expert": np.array(routing.n_expert),
        "n_used": np.array(routing.n_used),
        "method": routing.method[:MOST_WORDS],
        "text": routing.text[:MOST_WORDS],
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
        RoutingFileError: no such file, arrays that do not fit the model, or more than can be a recording.
    """

    def check(claims: dict[str, Claim]) -> None:
        for name, claim in claims.items():
            _check(name, claim.shape, shape, subject)

    found, words = npz.read(data, subject, _NUMBERS, _WORDS, check)
    if words.get("schema", SCHEMA) != SCHEMA:
        raise RoutingFileError(subject, expected=SCHEMA, found=printable(words["schema"]))
    n_expert, n_used = _one(found, "n_expert", shape.n_expert), _one(found, "n_used", shape.n_used)
    if n_expert != shape.n_expert or not 0 < n_used <= n_expert:
        expected = f"{units.counted(shape.n_expert, 'expert')} per layer, and no more per token"
        raise RoutingFileError(subject, expected=expected, found=f"{n_used} of {n_expert}")
    phases = {name: _phase(found, name, n_expert, n_used, subject) for name in _PHASES}
    known = [phase for phase, _ in phases.values() if phase is not None]
    if not known:
        raise RoutingFileError(subject, expected="decode or prefill selections", found="neither")
    rows, used = {len(phase.counts) for phase in known}, {n for phase, n in phases.values() if phase is not None}
    layers = tuple(int(n) for n in found["layers"].ravel()) if "layers" in found else shape.layers
    if rows != {len(layers)}:
        numbers = " and ".join(map(str, sorted(rows)))
        raise RoutingFileError(subject, expected=f"{units.counted(len(layers), 'layer')} with experts", found=numbers)
    if len(used) != 1:
        raise RoutingFileError(subject, expected="the same selections per token in both phases", found="others")
    return Routing(
        source=subject,
        method=printable(words.get("method", "route trace"), MOST_WORDS),
        layers=layers,
        n_expert=n_expert,
        n_used=used.pop(),
        prefill=phases["prefill"][0],
        decode=phases["decode"][0],
        fingerprint=printable(words.get("fingerprint", "")),
        text=printable(words.get("text", ""), MOST_WORDS),
    )


def _check(name: str, found: tuple[int, ...], shape: Shape, subject: str) -> None:
    """Whether an array of this shape can be a recording of the model; raises RoutingFileError."""
    n_layers, n_expert = len(shape.layers), shape.n_expert
    expected = ""
    if name in _WORDS:
        return
    if name in ("n_expert", "n_used"):
        expected = "" if prod(found) == 1 else f"one number as {name}"
    elif name == "layers":
        expected = "" if prod(found) <= n_layers else f"at most {units.counted(n_layers, 'layer')} with experts"
    elif len(found) == 3 and name in _PHASES:
        if found[1] > n_layers:
            expected, found = f"at most {units.counted(n_layers, 'layer')} with experts", found[1:2]
        elif found[2] > n_expert:
            expected, found = f"at most {units.counted(n_expert, 'expert')} per token", found[2:]
        elif prod(found) > MOST_SELECTIONS:
            expected, found = f"at most {MOST_SELECTIONS} selections", (prod(found),)
    elif len(found) != 2 or found[0] > n_layers or found[1] != n_expert:
        expected = f"{name} of at most {units.counted(n_layers, 'layer')} with experts, of {n_expert} each"
    if expected:
        raise RoutingFileError(subject, expected=expected, found=" x ".join(map(str, found)) or "one number")


def _phase(
    found: dict[str, np.ndarray], name: str, n_expert: int, n_used: int, subject: str
) -> tuple[Phase | None, int]:
    """The phase and its selections per token."""
    import numpy as np

    sequence, counts = found.get(name), found.get(f"{name}_counts")
    if sequence is not None and sequence.ndim == 3 and sequence.size:
        routed = sequence != NOT_ROUTED
        if routed.any() and sequence.min() >= 0 and np.max(sequence, where=routed, initial=0) < n_expert:
            return phase_of(sequence, n_expert), sequence.shape[2]
    # selections per token and layer, or already summed over the tokens
    summed = counts if counts is not None else sequence if sequence is not None and sequence.ndim == 2 else None
    if summed is None or not summed.size:
        return None, 0
    if summed.min() < 0 or summed.max() > MOST_COUNT:
        raise RoutingFileError(subject, expected=f"{name} counts from 0 to {MOST_COUNT}", found="others")
    rows = tuple(tuple(int(n) for n in row) for row in summed)
    return phase_of_counts(rows, n_used), n_used


def _one(found: dict[str, np.ndarray], name: str, otherwise: int) -> int:
    return int(found[name].ravel()[0]) if name in found else otherwise
