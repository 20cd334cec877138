"""Which experts a model really used: selections as they were read or captured, and what they come to."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NOT_ROUTED: Final = 0xFFFF
"""A token that never reached a layer's router, in sequences of uint16."""


@dataclass(frozen=True, slots=True)
class Phase:
    """The selections of prefill or of decode.

    Args:
        n_tokens: tokens that reached the router of the layer that saw most.
        counts: ``[layer row][expert]``, how often each was selected.
        sequence: little-endian uint16 ``[token, layer row, slot]`` in the router's order, ``NOT_ROUTED`` for a
            token that a layer never saw; None where the order is not known.
    """

    n_tokens: int
    counts: tuple[tuple[int, ...], ...]
    sequence: bytes | None = None


@dataclass(frozen=True, slots=True)
class Routing:
    """One recording.

    Args:
        source: the file it came from, or what captured it; safe to print.
        method: how the selections were seen, in a few words.
        layers: block index per row of the counts.
        n_used: selections per token and layer.
        fingerprint: of the model it belongs to; empty if the file does not say.
        text: what was read while it was recorded; empty if unknown.
    """

    source: str
    method: str
    layers: tuple[int, ...]
    n_expert: int
    n_used: int
    prefill: Phase | None
    decode: Phase | None
    fingerprint: str = ""
    text: str = ""

    @property
    def main(self) -> Phase:
        """What a pool in decode sees: decode, or the prompt where decode is missing or too short to tell."""
        phases = [phase for phase in (self.decode, self.prefill) if phase is not None]
        long = [phase for phase in phases if phase.n_tokens >= LEAST_TOKENS]
        ordered = [phase for phase in long if phase.sequence is not None]
        return (ordered or long or sorted(phases, key=lambda phase: -phase.n_tokens))[0]


LEAST_TOKENS: Final = 32
"""Fewer tokens than this say little about reuse."""


class Policy(StrEnum):
    """What a pool of experts holds."""

    LAYERS = "layers"
    """Whole layers, as ``--n-cpu-moe`` and ``-ot`` place them."""
    STATIC = "static"
    """A fixed set, the most frequent ones."""
    LAYER_LRU = "layer_lru"
    """Equal parts per layer, each with its least recently used expert out first."""
    LRU = "lru"
    """One pool, least recently used out first; the prompt goes through it."""
    SERVED = "served"
    """The same as llama.cpp's cache fills it: prompts pass it by, answers before have filled it."""
    LFU = "lfu"
    """One pool, least frequently used out first."""


class Ground(StrEnum):
    """What a hit-rate curve stands on."""

    REPLAY = "replay"
    """The recorded sequence, replayed."""
    COUNTS = "counts"
    """Frequencies alone: a lower bound for a pool that adapts."""
    PRIOR = "prior"
    """No data: what other models showed."""


@dataclass(frozen=True, slots=True)
class HitCurve:
    """Share of the selections that a pool serves, by its share of all expert bytes.

    Args:
        points: ``(share of the bytes, hit rate)``, ascending.
    """

    policy: Policy
    ground: Ground
    points: tuple[tuple[float, float], ...]

    def at(self, share: float) -> float:
        """Hit rate of a pool with this share of the bytes, linear between points; everything held hits always."""
        if share >= 1.0:
            return 1.0
        known = ((0.0, 0.0), *self.points, (1.0, 1.0))
        right = bisect_right(known, share, key=lambda point: point[0])
        (x0, y0), (x1, y1) = known[right - 1], known[right]
        return y0 + (y1 - y0) * (share - x0) / (x1 - x0)


@dataclass(frozen=True, slots=True)
class LayerUse:
    """One layer's use of its experts.

    Args:
        entropy_bits: of the selection frequencies; ``log2(n_expert)`` is uniform.
        effective: experts that a uniform router would need for the same entropy.
        touched: experts selected at least once.
        top_share: selections that the most used tenth of the experts takes.
    """

    layer: int
    n_selections: int
    entropy_bits: float
    effective: float
    touched: int
    top_share: float


@dataclass(frozen=True, slots=True)
class Stability:
    """A fixed set learned on the first half of the tokens and scored on the second.

    Args:
        share: of the expert bytes that the set holds.
        learned, fitted: hit rate on the second half of the set from the first half, and of its own best set.
    """

    share: float
    learned: float
    fitted: float


@dataclass(frozen=True, slots=True)
class RoutingStats:
    """What a recording says.

    Args:
        phase: ``decode`` or ``prefill``, the one that the figures are from.
        shares: ``(share of the experts, share of the selections)`` of the most used.
        overlap: ``(distance in tokens, share of the experts selected again)``; empty without an order.
        stability: None without an order.
        cycle_share: share of the expert bytes that one token selects.
    """

    routing: Routing
    phase: str
    n_tokens: int
    layers: tuple[LayerUse, ...]
    shares: tuple[tuple[float, float], ...]
    overlap: tuple[tuple[int, float], ...]
    stability: Stability | None
    curves: tuple[HitCurve, ...]
    expert_bytes: int
    cycle_bytes: int

    @property
    def cycle_share(self) -> float:
        return self.cycle_bytes / self.expert_bytes

    def curve(self, policy: Policy) -> HitCurve | None:
        return next((curve for curve in self.curves if curve.policy is policy), None)

    @property
    def adaptive(self) -> HitCurve:
        """What is known of llama.cpp's pool: its replay, or a lower bound from counts."""
        found = self.curve(Policy.SERVED) or self.curve(Policy.LRU) or self.curve(Policy.STATIC)
        return found if found is not None else prior(self.cycle_share)


PRIOR_POWER: Final = 6.0
"""``hit = 1 - (1 - share)^a`` with a from 4.5 to 9 fits three traces and seven published hit rates of other models
within about 10 points for shares of 5 to 50 %; traces of Helldez/BigMoeOnEdge and its reports."""
PRIOR_BAND: Final = (4.5, 9.0)
_PRIOR_SHARES: Final = (0.02, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9)


def prior(cycle_share: float, power: float = PRIOR_POWER) -> HitCurve:
    """What to expect of one pool with an LRU where nothing was recorded: nothing below one token's experts."""
    above = tuple((f, 1.0 - (1.0 - f) ** power) for f in _PRIOR_SHARES if f > cycle_share)
    low, start = (cycle_share * 0.999, 0.0), (cycle_share, 1.0 - (1.0 - cycle_share) ** power)
    floor = (low, start) if 0.0 < cycle_share < 1.0 else ()
    return HitCurve(Policy.LRU, Ground.PRIOR, (*floor, *above))


@dataclass(frozen=True, slots=True)
class PoolSet:
    """A fixed set of experts.

    Args:
        experts: ``(block, expert)``, ascending.
        layers, expert_bytes: blocks with experts, and the bytes of one expert there.
        n_bytes: what the set really takes.
        hit_rate: on the counts that it was chosen by.
    """

    experts: tuple[tuple[int, int], ...]
    layers: tuple[int, ...]
    expert_bytes: tuple[int, ...]
    budget_bytes: int
    n_bytes: int
    hit_rate: float

    def entries(self, layer: int) -> int:
        return sum(block == layer for block, _ in self.experts)
