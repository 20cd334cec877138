"""PCI Express: what a link moves with pinned memory, derived from its generation and width."""

from __future__ import annotations

from typing import Final

from planner.facts.reading import Reading, Source

_LANE_BPS: Final = {
    1: 2.5e9 * 8 / 10 / 8, 2: 5e9 * 8 / 10 / 8, 3: 8e9 * 128 / 130 / 8,
    4: 16e9 * 128 / 130 / 8, 5: 32e9 * 128 / 130 / 8, 6: 64e9 * 242 / 256 / 8,
}  # fmt: skip
"""Nominal bytes per second and lane (PCI Express base specification, line coding taken off)."""
_PINNED_SHARE: Final = {4: 23.46e9 / 31.508e9, 5: 55.1e9 / 63.015e9}
"""Measured share of nominal: RTX 4080 SUPER on 4.0 x16 23.46 GB/s; data-centre card on 5.0 x16 55.1 GB/s."""


def pinned(generation: int, width: int) -> Reading | None:
    """Host to device rate with pinned memory, bytes per second; None for a link that does not exist."""
    lane = _LANE_BPS.get(generation)
    if lane is None or not 1 <= width <= 32:
        return None
    share = _PINNED_SHARE[5 if generation >= 5 else 4]
    method = f"PCIe {generation}.0 x{width}, pinned share {share:.3f} of nominal"
    return Reading(round(lane * width * share, -6), Source.DERIVED, method)
