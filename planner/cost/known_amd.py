"""AMD cards of RDNA 2 to 4 and CDNA: see ``known_gpus`` for the columns and the sources.

An MI250X shows as two devices; the figures are those of one.
"""

from __future__ import annotations

from typing import Final

_4X16, _4X8, _4X4, _5X16 = (4, 16), (4, 8), (4, 4), (5, 16)

AMD: Final = (
    ("rx 9070 xt", None, 640.0, 195.0, _5X16),
    ("rx 9070", None, 640.0, 145.0, _5X16),
    ("rx 9070 gre", None, 432.0, None, _5X16),
    ("rx 9060 xt", None, 320.0, 103.0, _5X16),
    ("ai pro r9700", None, 640.0, 191.0, _5X16),
    ("rx 7900 xtx", None, 960.0, 122.8, _4X16),
    ("rx 7900 xt", None, 800.0, 103.0, _4X16),
    ("rx 7900 gre", None, 576.0, 91.9, _4X16),
    ("rx 7800 xt", None, 624.0, 74.7, _4X16),
    ("rx 7700 xt", None, 432.0, 70.3, _4X16),
    ("rx 7600 xt", None, 288.0, 45.1, _4X8),
    ("rx 7600", None, 288.0, 43.5, _4X8),
    ("pro w7900", None, 864.0, 122.6, _4X16),
    ("pro w7800", 48, 864.0, 90.5, _4X16),
    ("pro w7800", 32, 576.0, 90.5, _4X16),
    ("pro w7700", None, 576.0, 56.5, _4X16),
    ("rx 6950 xt", None, 576.0, 47.3, _4X16),
    ("rx 6900 xt", None, 512.0, 46.1, _4X16),
    ("rx 6800 xt", None, 512.0, 41.5, _4X16),
    ("rx 6800", None, 512.0, 32.3, _4X16),
    ("rx 6750 xt", None, 432.0, 26.6, _4X16),
    ("rx 6700 xt", None, 384.0, 26.4, _4X16),
    ("rx 6700", None, 320.0, 22.6, _4X16),
    ("rx 6650 xt", None, 280.0, 21.6, _4X8),
    ("rx 6600 xt", None, 256.0, 21.2, _4X8),
    ("rx 6600", None, 224.0, 17.9, _4X8),
    ("rx 6500 xt", None, 144.0, 11.5, _4X4),
    ("pro w6800", None, 512.0, 35.7, _4X16),
    ("mi355x", None, 8000.0, 2500.0, _5X16),
    ("mi350x", None, 8000.0, 2300.0, _5X16),
    ("mi325x", None, 6000.0, 1307.0, _5X16),
    ("mi300x", None, 5300.0, 1307.0, _5X16),
    ("mi250x", None, 1638.0, 191.5, _4X16),
    ("mi250", None, 1638.0, 181.0, _4X16),
    ("mi210", None, 1638.0, 181.0, _4X16),
    ("mi100", None, 1229.0, 184.6, _4X16),
    ("mi60", None, 1024.0, 29.5, _4X16),
    ("mi50", None, 1024.0, 26.5, _4X16),
)
