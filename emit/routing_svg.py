"""Share and hit-rate curves as one SVG without outside references."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from emit.routing_view import NAMES
from emit.wording import clean
from planner import units
from planner.facts.model import Model
from planner.facts.routing import Ground, HitCurve, Policy, RoutingStats

WIDTH: Final = 760
HEIGHT: Final = 460
_LEFT, _TOP, _RIGHT, _BOTTOM = 70, 70, 600, 400
_COLOURS: Final = {
    Policy.SERVED: "#0f172a",
    Policy.LRU: "#0b6bcb",
    Policy.LFU: "#c2410c",
    Policy.LAYER_LRU: "#15803d",
    Policy.STATIC: "#7e22ce",
    Policy.LAYERS: "#6b7280",
}


def routing_svg(model: Model) -> str:
    """Hit rate over the pool's share of the expert bytes, one line per kind of pool; needs ``model.routing``."""
    stats = model.routing
    assert stats is not None
    return "\n".join([*_frame(model, stats), *_lines(stats), *_cycle(stats), "</svg>"]) + "\n"


def _frame(model: Model, stats: RoutingStats) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">'
    )
    name = clean(model.name or model.arch)
    yield f"<title>{escape(name)}: hit rate of a pool of experts</title>"
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield _text(_LEFT, 24, f"{name}: hit rate of a pool of experts", size=16)
    said = f"{units.count(stats.n_tokens)} tokens of {stats.phase}, {clean(stats.routing.method)}"
    yield _text(_LEFT, 44, said, colour="#4b5563")
    for tenth in range(0, 11, 2):
        x, y = _x(tenth / 10), _y(tenth / 10)
        yield f'<path d="M{x:.1f} {_TOP}V{_BOTTOM}M{_LEFT} {y:.1f}H{_RIGHT}" stroke="#e5e7eb" fill="none"/>'
        yield _text(x, _BOTTOM + 18, f"{tenth * 10}%", anchor="middle")
        yield _text(x, _BOTTOM + 32, units.size(tenth / 10 * stats.expert_bytes), anchor="middle", colour="#6b7280")
        yield _text(_LEFT - 8, y + 4, f"{tenth * 10}%", anchor="end")
    yield _text((_LEFT + _RIGHT) / 2, _BOTTOM + 52, "pool, share of all expert bytes", anchor="middle")
    size = f'width="{_RIGHT - _LEFT}" height="{_BOTTOM - _TOP}"'
    yield f'<rect x="{_LEFT}" y="{_TOP}" {size} fill="none" stroke="#111827"/>'


def _lines(stats: RoutingStats) -> Iterator[str]:
    for number, curve in enumerate(stats.curves):
        colour, y = _COLOURS[curve.policy], _TOP + 16 + 20 * number
        yield _path(((0.0, 0.0), *curve.points, (1.0, 1.0)), colour, dashed=curve.ground is not Ground.REPLAY)
        yield f'<path d="M{_RIGHT + 14} {y - 4}h20" stroke="{colour}" stroke-width="2"{_dash(curve)}/>'
        yield _text(_RIGHT + 40, y, NAMES[curve.policy])
    y = _TOP + 16 + 20 * len(stats.curves)
    yield _path(((0.0, 0.0), *stats.shares, (1.0, 1.0)), "#ca8a04", dashed=True)
    yield f'<path d="M{_RIGHT + 14} {y - 4}h20" stroke="#ca8a04" stroke-width="2" stroke-dasharray="5 4"/>'
    yield _text(_RIGHT + 40, y, "share of the most")
    yield _text(_RIGHT + 40, y + 14, "used experts")
    yield _text(_RIGHT + 14, y + 40, "solid: replayed", colour="#6b7280")
    yield _text(_RIGHT + 14, y + 56, "dashed: from counts", colour="#6b7280")


def _cycle(stats: RoutingStats) -> Iterator[str]:
    """Where one token's experts fit."""
    x = _x(min(stats.cycle_share, 1.0))
    yield f'<path d="M{x:.1f} {_TOP}V{_BOTTOM}" stroke="#dc2626" stroke-dasharray="2 3"/>'
    yield _text(x + 4, _BOTTOM - 6, f"one token: {units.size(stats.cycle_bytes)}", colour="#dc2626")


def _path(points: tuple[tuple[float, float], ...], colour: str, *, dashed: bool) -> str:
    steps = "L".join(f"{_x(x):.1f} {_y(y):.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="M{steps}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'


def _dash(curve: HitCurve) -> str:
    return "" if curve.ground is Ground.REPLAY else ' stroke-dasharray="5 4"'


def _x(share: float) -> float:
    return _LEFT + share * (_RIGHT - _LEFT)


def _y(rate: float) -> float:
    return _BOTTOM - rate * (_BOTTOM - _TOP)


def _text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, colour: str = "#111827") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f"<text {place}>{escape(words)}</text>"
