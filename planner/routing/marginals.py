"""What frequencies alone say about a pool: the order of the selections is not needed, or not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np

STEPS: Final = 60
"""Halvings of the search for the characteristic time: below a billionth of its range."""


def static_hits(
    learned: np.ndarray, scored: np.ndarray, sizes: np.ndarray, shares: tuple[float, ...]
) -> tuple[float, ...]:
    """Hit rates of a fixed set over all layers: most selections per byte first.

    Args:
        learned: counts ``[layer row, expert]`` that choose the set; ``scored`` those it is measured on.
        sizes: bytes of one expert per layer row.
        shares: of the bytes of all experts.
    """
    import numpy as np

    n_bytes = np.repeat(sizes, learned.shape[1])
    order = np.argsort(-learned.ravel() / n_bytes, kind="stable")
    held = np.cumsum(n_bytes[order])
    hits = np.concatenate([[0], np.cumsum(scored.ravel()[order])])
    fit = np.searchsorted(held, np.array(shares) * n_bytes.sum(), side="right")
    return tuple(float(n) for n in hits[fit] / max(int(scored.sum()), 1))


def whole_layers(counts: np.ndarray, sizes: np.ndarray, shares: tuple[float, ...]) -> tuple[float, ...]:
    """Share of the selections in the last layers whose experts fit whole, as ``--n-cpu-moe`` leaves them."""
    import numpy as np

    held = np.cumsum(sizes[::-1]) * counts.shape[1]
    hits = np.concatenate([[0], np.cumsum(counts.sum(axis=1)[::-1])])
    fit = np.searchsorted(held, np.array(shares) * held[-1] + 0.5, side="right")
    return tuple(float(n) for n in hits[fit] / max(int(counts.sum()), 1))


def lru_bound(counts: np.ndarray, sizes: np.ndarray, n_used: int, shares: tuple[float, ...]) -> tuple[float, ...]:
    """Hit rates of one LRU if every token drew its experts independently: real routes repeat, so they hit more.

    Che's approximation (Che, Tung, Wang 2002): an expert is held while its last use is less than a characteristic
    time ago, the one at which the expected bytes held are the pool's.
    """
    import numpy as np

    totals = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    chance = np.minimum(n_used * counts / totals, 1.0)
    n_bytes = np.repeat(sizes[:, None], counts.shape[1], axis=1)
    gone = np.log1p(-np.minimum(chance, 1.0 - 1e-12))
    weights = counts / max(int(counts.sum()), 1)

    def held(tokens: float) -> np.ndarray:
        share: np.ndarray = 1.0 - np.exp(gone * tokens)
        return share

    found = []
    for budget in np.array(shares) * n_bytes.sum():
        low, high = 0.0, 1e9
        for _ in range(STEPS):
            middle = (low + high) / 2 if high - low < 2 else (low * high) ** 0.5 if low > 0 else high**0.5
            low, high = (middle, high) if (held(middle) * n_bytes).sum() <= budget else (low, middle)
        found.append(float((weights * held(low)).sum()))
    return tuple(found)
