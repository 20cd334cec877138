"""Bytes and rates: the one place that parses and words a size.

Sizes on the command line accept ``GiB MiB KiB GB MB KB B``; inside, everything is bytes, seconds,
bytes per second and tokens per second.
"""

from __future__ import annotations

import re
from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

_SUFFIX: Final = {
    "b": 1,
    "k": KIB, "kb": 1000, "kib": KIB,
    "m": MIB, "mb": 1000**2, "mib": MIB,
    "g": GIB, "gb": 1000**3, "gib": GIB,
    "t": 1 << 40, "tb": 1000**4, "tib": 1 << 40,
}  # fmt: skip
_SIZE: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_LARGEST: Final = 1 << 60


def parse_size(text: str) -> int:
    """``"12.5GiB"`` → bytes. The unit is required: a bare 16 would be sixteen bytes.

    Raises:
        ValueError: not a number with one of the known units, or over 2^60 bytes.
    """
    match = _SIZE.fullmatch(text)
    factor = _SUFFIX.get(match[2].lower()) if match else None
    if match is None or factor is None or len(match[1]) > 40:
        raise ValueError(f"expected a size such as 12GiB, 800MiB or 16GB, found {text!r}")
    value = int(float(match[1]) * factor)
    if value > _LARGEST:
        raise ValueError(f"expected at most 2^60 bytes, found {text!r}")
    return value


def whole(text: str) -> int:
    """``"-12"`` → -12: ASCII digits alone, where ``int`` takes those of every script, blanks and ``_``.

    Raises:
        ValueError: not such a number.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"expected a whole number, found {text!r}")
    return int(text)


def real(text: str) -> float:
    """``"0.5"`` → 0.5, of ASCII characters as well.

    Raises:
        ValueError: not a number.
    """
    if not text.isascii():
        raise ValueError(f"expected a number, found {text!r}")
    return float(text)


def mib(n_bytes: float) -> str:
    """Bytes → ``"1,234 MiB"``: memory terms, where the last MiB matters."""
    return f"{n_bytes / MIB:,.0f} MiB"


def size(n_bytes: float) -> str:
    """Bytes → the largest binary unit that keeps three digits, e.g. ``"17.3 GiB"``."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(n_bytes) >= factor:
            return f"{n_bytes / factor:,.1f} {unit}"
    return f"{n_bytes:,.0f} B"


def rate(bps: float) -> str:
    """Bytes per second → ``"55.1 GB/s"`` (decimal, as links and memory are sold)."""
    return f"{bps / 1e9:,.1f} GB/s"


def number(value: float) -> str:
    """Three significant digits, no exponent: ``"4,180"``, ``"41.9"``, ``"0.71"``."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with as many digits as tell them apart, five significant ones at most."""
    shown = number(one), number(other)
    for digits in (3, 4, 5):
        if shown[0] != shown[1]:
            break
        shown = f"{one:,.{digits}g}", f"{other:,.{digits}g}"
    return shown


def duration(seconds: float) -> str:
    """``"10.2 s"``; over two minutes ``"3 min 20 s"``, ``"44 min"``, ``"7 h 44 min"``."""
    if seconds < 120:
        return f"{number(seconds)} s"
    if round(seconds) < 600:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"


def counted(n: int, noun: str, plural: str = "") -> str:
    """``"1 token"``, ``"16,384 tokens"``; ``plural`` where it is not the noun with an s."""
    return f"{count(n)} {noun if n == 1 else plural or noun + 's'}"


def count(n: float) -> str:
    """A count with thousands separators, ``"16,384"``."""
    return f"{n:,.0f}"
