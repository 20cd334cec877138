"""Which NVIDIA devices a CUDA program sees, and in which order.

Source: CUDA C++ Programming Guide, "CUDA Environment Variables" (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Card:
    """A device in NVML's order, which is that of the PCI bus.

    Args:
        handle: NVML's handle.
        speed: cores times clock, to rank by; 0 if unknown.
        slices: its MIG devices, empty when MIG is off.
        parent: handle of the card that a MIG device is part of.
    """

    handle: Any
    uuid: str
    speed: float
    slices: tuple[Card, ...] = ()
    parent: Any | None = None


def visible(cards: tuple[Card, ...], selection: str | None, *, by_bus: bool) -> tuple[Card, ...]:
    """Devices in CUDA's numbering.

    CUDA puts the fastest device first and leaves the rest in bus order, unless ``CUDA_DEVICE_ORDER`` asks
    for bus order throughout. A selection names devices by that number or by (the start of) a UUID; the first
    name that matches nothing ends the list. Of a card in MIG mode a program sees one slice; without a
    selection CUDA offers a single MIG device and nothing beside it only where no full card is there.
    """
    ordered = cards if by_bus else _fastest_first(cards)
    if selection is None:
        whole_cards = tuple(card for card in ordered if not card.slices)
        slices = tuple(part for card in ordered for part in card.slices)
        return whole_cards or slices[:1]
    chosen: list[Card] = []
    for name in selection.split(","):
        card = _named(ordered, name.strip())
        if card is None or card in chosen:
            break
        chosen.append(card)
    return tuple(chosen)


def _fastest_first(cards: tuple[Card, ...]) -> tuple[Card, ...]:
    best = max(cards, key=lambda card: card.speed, default=None)
    return cards if best is None else (best, *(card for card in cards if card is not best))


def _named(ordered: tuple[Card, ...], name: str) -> Card | None:
    if name.isascii() and name.isdigit():
        number = int(name[:9])
        card = ordered[number] if number < len(ordered) else None
        return card.slices[0] if card is not None and card.slices else card
    everything = (*ordered, *(part for card in ordered for part in card.slices))
    fits = [card for card in everything if name and card.uuid.lower().startswith(name.lower())]
    return fits[0] if len(fits) == 1 else None
