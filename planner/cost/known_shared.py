"""Intel's cards, and graphics whose memory is the host's: see ``known_gpus`` for the columns and the sources.

Built-in graphics without a figure read RAM at its own rate. Of ``M3 Max`` and ``M4 Max`` there are two; the
processor's cores tell them apart (``known_cpus``).
"""

from __future__ import annotations

from typing import Final

_4X16, _4X8, _5X8 = (4, 16), (4, 8), (5, 8)

INTEL: Final = (
    ("arc b580", None, 456.0, 116.5, _4X8),
    ("arc b570", None, 380.0, 101.5, _4X8),
    ("arc pro b60", None, 456.0, 98.5, _5X8),
    ("arc pro b50", None, 224.0, 85.0, _5X8),
    ("arc a770", 16, 560.0, 131.0, _4X16),
    ("arc a770", 8, 512.0, 131.0, _4X16),
    ("arc a750", None, 512.0, 114.5, _4X16),
    ("arc a580", None, 512.0, 98.5, _4X16),
    ("arc a380", None, 186.0, 33.0, _4X8),
)

SHARED: Final = (
    ("gb10", None, 273.0, 125.0, None),
    ("thor", None, 273.0, 258.8, None),
    ("orin", None, 204.8, 42.5, None),
    ("8060s", None, 256.0, 59.4, None),
    ("8050s", None, 256.0, 45.9, None),
    ("890m", None, None, 23.8, None),
    ("780m", None, None, 16.6, None),
    ("m1", None, 68.0, 2.6, None),
    ("m1 pro", None, 200.0, 5.2, None),
    ("m1 max", None, 400.0, 10.4, None),
    ("m1 ultra", None, 800.0, 20.8, None),
    ("m2", None, 100.0, 3.6, None),
    ("m2 pro", None, 200.0, 6.8, None),
    ("m2 max", None, 400.0, 13.6, None),
    ("m2 ultra", None, 800.0, 27.2, None),
    ("m3", None, 100.0, 3.6, None),
    ("m3 pro", None, 150.0, 6.5, None),
    ("m3 max", None, None, 14.3, None),
    ("m3 ultra", None, 819.0, 28.7, None),
    ("m4", None, 120.0, 4.0, None),
    ("m4 pro", None, 273.0, 8.1, None),
    ("m4 max", None, None, 16.2, None),
)
