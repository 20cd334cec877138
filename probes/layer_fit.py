"""From times of two depths to the time of one layer: differences, medians, and a line through ubatch sizes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probes.figures import median


@dataclass(frozen=True, slots=True)
class Timing:
    """One run of the engine on one file.

    Args:
        decode_s: seconds per token, one entry per repeat.
        prefill_s: seconds of a whole batch by its tokens, one entry per repeat.
    """

    decode_s: tuple[float, ...]
    prefill_s: Mapping[int, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Difference:
    """``value`` seconds per layer; ``spread`` is half the distance between repeated differences, None with one."""

    value: float
    spread: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of a ubatch = ``fixed_s`` + ``per_token_s`` times its tokens."""

    fixed_s: float
    per_token_s: float

    def at(self, tokens: float) -> float:
        return self.fixed_s + self.per_token_s * tokens


def difference(shallow: Sequence[Sequence[float]], deep: Sequence[Sequence[float]], n_layers: int) -> Difference | None:
    """Time of one layer from runs of both depths in the order they were taken.

    Of each run the fastest repeat counts, because interruptions only add time. Runs are paired in order, so that
    what slows the machine for a while slows both, and the median of the pairs counts. None if no layer's time comes
    out: it drowns in noise.
    """
    pairs = [(min(more) - min(less)) / n_layers for less, more in zip(shallow, deep, strict=False) if less and more]
    if not pairs:
        return None
    value, half = median(pairs), (max(pairs) - min(pairs)) / 2
    if value <= 0 or value <= half / len(pairs):
        return None
    return Difference(value, half if len(pairs) > 1 else None)


def line(points: Mapping[int, float]) -> Line | None:
    """The line through ``tokens → seconds`` with the least relative error; neither part is negative.

    None without two sizes.
    """
    if len(points) < 2:
        return None
    # Weights 1/seconds²: an error of 10 % counts the same at every size.
    w = {t: 1.0 / (s * s) for t, s in points.items()}
    total = sum(w.values())
    mean_t = sum(w[t] * t for t in points) / total
    mean_s = sum(w[t] * s for t, s in points.items()) / total
    across = sum(w[t] * (t - mean_t) ** 2 for t in points)
    slope = sum(w[t] * (t - mean_t) * (s - mean_s) for t, s in points.items()) / across
    fixed = mean_s - slope * mean_t
    if slope <= 0:
        return Line(mean_s, 0.0)
    if fixed < 0:
        squares = sum(w[t] * t * t for t in points)
        return Line(0.0, sum(w[t] * t * s for t, s in points.items()) / squares)
    return Line(fixed, slope)


def crossing(mixed_s: float, device_s: float, host_s: float, expert_share: float) -> float | None:
    """What a layer with its experts on the host takes in decode beyond its two parts alone, seconds.

    Args:
        mixed_s, device_s, host_s: the layer split, all on the device, all on the host.
        expert_share: the experts' share of the bytes a token reads.

    Returns:
        None where the parts alone explain all of it.
    """
    rest = mixed_s - device_s * (1.0 - expert_share) - host_s * expert_share
    return rest if rest > 0 else None
