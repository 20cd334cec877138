"""Phases of a recording to and from numpy arrays. Only this package's functions see arrays; facts hold bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.facts.routing import NOT_ROUTED, Phase

if TYPE_CHECKING:
    import numpy as np

_BLOCK: Final = 1 << 20
"""Selections counted at once: they take eight bytes each meanwhile."""


def phase_of(sequence: np.ndarray, n_expert: int) -> Phase | None:
    """A phase from ``[token, layer row, slot]`` expert ids; None without a token."""
    import numpy as np

    if not sequence.size:
        return None
    rows = sequence.shape[1]
    found = np.zeros(rows * n_expert, np.int64)
    first = np.arange(rows)[None, :, None] * n_expert
    block = max(_BLOCK // (rows * sequence.shape[2]), 1)
    for start in range(0, len(sequence), block):
        part = sequence[start : start + block]
        found += np.bincount((first + part.astype(np.int64))[part != NOT_ROUTED], minlength=len(found))
    counts = tuple(tuple(int(n) for n in row) for row in found.reshape(rows, n_expert))
    return Phase(len(sequence), counts, sequence.astype("<u2").tobytes())


def phase_of_counts(counts: tuple[tuple[int, ...], ...], n_used: int) -> Phase:
    """A phase whose order is not known."""
    return Phase(max(sum(row) for row in counts) // n_used, counts)


def sequence_of(phase: Phase, n_used: int) -> np.ndarray:
    """``[token, layer row, slot]``; of a phase that has an order."""
    import numpy as np

    return np.frombuffer(phase.sequence or b"", "<u2").reshape(-1, len(phase.counts), n_used)


def counts_of(phase: Phase) -> np.ndarray:
    """``[layer row, expert]``, int64."""
    import numpy as np

    return np.array(phase.counts, np.int64)
