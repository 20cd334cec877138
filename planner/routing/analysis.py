"""A recording and the bytes of a model's experts → statistics and hit-rate curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import log2
from typing import TYPE_CHECKING, Final

from planner.facts.routing import (
    NOT_ROUTED,
    Ground,
    HitCurve,
    LayerUse,
    Phase,
    Policy,
    Routing,
    RoutingStats,
    Stability,
)
from planner.routing import replay
from planner.routing.marginals import lru_bound, static_hits, whole_layers
from planner.routing.selections import counts_of, sequence_of

if TYPE_CHECKING:
    import numpy as np

SHARES: Final = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9)
"""Pools that are tried, as shares of all expert bytes."""
TOP_SHARES: Final = (0.05, 0.1, 0.2, 0.3, 0.5)
LAGS: Final = (1, 2, 4, 8, 16, 32)
HALVES_AT: Final = 0.2
"""Share of the bytes of the set whose stability is shown."""
MOST_TOKENS: Final = 1024
"""Replayed at most: a pool is in its steady state after some hundred tokens."""
MOST_LOOKUPS: Final = 800_000
"""Replayed at most, whatever a file claims: ``MOST_TOKENS`` of 94 layers with 8 experts each fit."""
MOST_WARM: Final = 512
"""Tokens of a text that fill a pool before the answer: one of half the experts is full by then."""
WARM_SHARE: Final = 0.25
"""Of a text replayed as if it were decoded, what only fills the pool."""


def analyse(routing: Routing, expert_bytes: tuple[int, ...], *, every_policy: bool = True) -> RoutingStats:
    """Statistics of the recording.

    Args:
        expert_bytes: of one expert, all its matrices, per layer of ``routing.layers``.
        every_policy: also those that llama.cpp cannot run, which take seconds to replay.
    """
    import numpy as np

    phase, sizes = routing.main, np.array(expert_bytes, np.float64)
    ordered = phase.sequence is not None
    sequence = sequence_of(phase, routing.n_used)[: _most_tokens(routing)] if ordered else None
    curves = _curves(routing, phase, sequence, sizes, every_policy)
    bank = int(sizes.sum()) * routing.n_expert
    return RoutingStats(
        routing=routing,
        phase="decode" if phase is routing.decode else "prefill",
        n_tokens=phase.n_tokens,
        layers=tuple(_layer(block, row) for block, row in zip(routing.layers, phase.counts, strict=True)),
        shares=_shares(counts_of(phase)),
        overlap=() if sequence is None else tuple(_overlap(sequence)),
        stability=None if sequence is None else _stability(sequence, sizes, routing.n_expert),
        curves=tuple(curves),
        expert_bytes=bank,
        cycle_bytes=int(sizes.sum()) * routing.n_used,
    )


def _most_tokens(routing: Routing) -> int:
    return max(min(MOST_TOKENS, MOST_LOOKUPS // (len(routing.layers) * routing.n_used)), 1)


def replay_notes(routing: Routing) -> tuple[str, ...]:
    """How much of the order is replayed, where it is not all."""
    most, phase = _most_tokens(routing), routing.main
    recorded = len(phase.sequence or b"") // (2 * len(routing.layers) * routing.n_used)
    words = f"reuse and hit rates are from the first {most:,} of {recorded:,} tokens of the recording"
    return (words,) if recorded > most else ()


def _layer(block: int, counts: tuple[int, ...]) -> LayerUse:
    total = max(sum(counts), 1)
    entropy = -sum(n / total * log2(n / total) for n in counts if n)
    tenth = max(round(len(counts) / 10), 1)
    top = sum(sorted(counts, reverse=True)[:tenth]) / total
    return LayerUse(block, sum(counts), entropy, 2.0**entropy, sum(n > 0 for n in counts), top)


def _shares(counts: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Share of all selections that the most used experts of each layer take."""
    import numpy as np

    down = -np.sort(-counts, axis=1)
    running, total = np.cumsum(down, axis=1).sum(axis=0), max(int(counts.sum()), 1)
    kept = ((share, max(round(share * counts.shape[1]), 1)) for share in TOP_SHARES)
    return tuple((share, float(running[n - 1]) / total) for share, n in kept)


def _overlap(sequence: np.ndarray) -> Iterator[tuple[int, float]]:
    """Share of a token's experts that the token ``lag`` before it selected, too."""
    import numpy as np

    for lag in LAGS:
        if lag >= len(sequence):
            return
        after, before = sequence[lag:], sequence[:-lag]
        again = np.zeros(after.shape, bool)
        for slot in range(before.shape[2]):
            again |= after == before[..., slot : slot + 1]
        routed = after != NOT_ROUTED
        yield lag, int((again & routed).sum()) / max(int(routed.sum()), 1)


def _stability(sequence: np.ndarray, sizes: np.ndarray, n_expert: int) -> Stability | None:
    from planner.routing.selections import phase_of

    first, second = (
        phase_of(half, n_expert) for half in (sequence[: len(sequence) // 2], sequence[len(sequence) // 2 :])
    )
    if first is None or second is None:
        return None
    learned, own = counts_of(first), counts_of(second)
    return Stability(
        HALVES_AT, static_hits(learned, own, sizes, (HALVES_AT,))[0], static_hits(own, own, sizes, (HALVES_AT,))[0]
    )


def _curves(
    routing: Routing, phase: Phase, sequence: np.ndarray | None, sizes: np.ndarray, every_policy: bool
) -> Iterator[HitCurve]:
    counts = counts_of(phase)
    cycle = routing.n_used / routing.n_expert
    if sequence is None:
        yield HitCurve(Policy.LRU, Ground.COUNTS, _points(lru_bound(counts, sizes, routing.n_used, SHARES), cycle))
    else:
        yield from _replayed(routing, phase, sequence, sizes, every_policy)
    if every_policy:
        yield HitCurve(Policy.STATIC, Ground.COUNTS, _points(static_hits(counts, counts, sizes, SHARES)))
        yield HitCurve(Policy.LAYERS, Ground.COUNTS, _points(whole_layers(counts, sizes, SHARES)))


def _replayed(
    routing: Routing, phase: Phase, sequence: np.ndarray, sizes: np.ndarray, every_policy: bool
) -> Iterator[HitCurve]:
    import numpy as np

    bank, rows = float(sizes.sum()) * routing.n_expert, len(sizes)
    yield HitCurve(Policy.SERVED, Ground.REPLAY, _served(routing, phase, sequence, sizes))
    if not every_policy:
        return
    warm, scored = _parts(routing, phase, sequence)
    found = replay.lookups(warm, scored, sizes, routing.n_expert)
    reuse = np.sort(replay.reuse_bytes(found))
    yield HitCurve(
        Policy.LRU, Ground.REPLAY, tuple((share, _held(reuse, share * bank)) for share in _shares_of(routing))
    )
    lfu = tuple((share, replay.lfu_hits(found, share * bank)) for share in SHARES)
    yield HitCurve(Policy.LFU, Ground.REPLAY, lfu)
    alone = (
        replay.lookups(warm[:, row : row + 1], scored[:, row : row + 1], sizes[row : row + 1], routing.n_expert)
        for row in range(rows)
    )
    by_layer = np.sort(np.concatenate([replay.reuse_bytes(one) for one in alone]))
    parts = tuple((share, _held(by_layer, share * bank / rows)) for share in SHARES)
    yield HitCurve(Policy.LAYER_LRU, Ground.REPLAY, parts)


def _served(routing: Routing, phase: Phase, sequence: np.ndarray, sizes: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Hit rates of llama.cpp's pool in the middle of a session.

    Batches of more than 32 tokens only read it, so prompts do not fill it, and it outlives a request
    (``get_slot_map``, src/llama-moe-cache.cpp, b11549). The text that was read stands for the answers before.
    """
    import numpy as np

    before, answer = _parts(routing, phase, sequence)
    before = before[-MOST_WARM:]
    found = replay.lookups(before[:0], np.concatenate([before, answer]), sizes, routing.n_expert)
    first = int((before != NOT_ROUTED).sum())
    reuse = np.sort(replay.reuse_bytes(replace(found, scored=np.arange(len(found.entry)) >= first)))
    bank = float(sizes.sum()) * routing.n_expert
    return tuple((share, _held(reuse, share * bank)) for share in _shares_of(routing))


def _shares_of(routing: Routing) -> list[float]:
    """``SHARES``, and the edge below which a token finds nothing of the one before: its own experts less a layer's."""
    cycle = routing.n_used / routing.n_expert
    edge = cycle * (1.0 - 1.0 / len(routing.layers))
    return [share for share in sorted({*SHARES, edge, cycle, 1.5 * cycle}) if share < 1.0]


def _parts(routing: Routing, phase: Phase, sequence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What fills the pool, and what is scored as decode."""
    prompt = routing.prefill
    if phase is routing.decode and prompt is not None and prompt.sequence is not None:
        return sequence_of(prompt, routing.n_used)[-_most_tokens(routing) :], sequence
    cut = int(len(sequence) * WARM_SHARE) if phase is routing.prefill else 0
    return sequence[:cut], sequence[cut:]


def _held(reuse: np.ndarray, budget: float) -> float:
    """Share of sorted reuse sizes within the budget."""
    import numpy as np

    return float(np.searchsorted(reuse, budget, side="right") / max(len(reuse), 1))


def _points(hits: tuple[float, ...], least: float = 0.0) -> tuple[tuple[float, float], ...]:
    return tuple((share, hit if share >= least else 0.0) for share, hit in zip(SHARES, hits, strict=True))
