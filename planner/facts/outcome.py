"""The three outcomes of a probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

LAYER: Final = "layer-rate"
"""The probe that times a layer of the model."""
BUSY: Final = "the machine was busy"
"""How the note of a figure begins that was measured beside other work."""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What one probe did: found something, found nothing to find, or failed; and how long it took."""

    name: str
    status: Literal["found", "absent", "failed"]
    reason: str
    duration_s: float
