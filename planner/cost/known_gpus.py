"""What vendors publish about a GPU, found by the name its driver gives it.

Figures are those of the reference card. Memory is the vendor's figure (base specification). The f16 rate is that
of dense matrix multiplies with f16 accumulation, without sparsity and at boost clock: half of the int8 rate, which
llama.cpp's quantised multiplies run at, on every NVIDIA card since Turing, RDNA 2 and 4, CDNA 3 and Intel's XMX.
Cards for other markets (``D``, ``M``, laptops of unknown power) that are not listed are not guessed.

Sources: NVIDIA architecture white papers (Turing to Blackwell) and data sheets; for GeForce and RTX PRO cards since
Blackwell an eighth of the "AI TOPS"; AMD's product pages and CDNA white papers; Intel ARK (half of the int8 TOPS);
Apple's technical specifications, where the f16 rate is that of f32: as published for M1 and M2, later ones by
128 multiply-adds a core and clock.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from planner.cost.known_amd import AMD
from planner.cost.known_nvidia import NVIDIA
from planner.cost.known_shared import INTEL, SHARED
from planner.cost.known_sms import RESIDENT_THREADS
from planner.units import GIB

MAX_NAME: Final = 128
"""Characters of a name that are looked at."""

_NOISE: Final = frozenset(
    {"nvidia", "geforce", "amd", "ati", "radeon", "intel", "apple", "tesla", "instinct", "corporation"}
    | {"graphics", "gpu", "igpu", "generation", "edition", "series", "with", "design"}
)
_BRACKETS: Final = re.compile(r"\([^()]{0,64}\)")
_MEMORY: Final = re.compile(r"\b\d{1,3} ?gi?b\b")
_WORD: Final = re.compile(r"(?:(rtx|gtx|rx)(?=\d))?([a-z0-9]{1,32}?)(?:(?<=\d)(ti|xtx|xt|super))?$")
_FAMILIES: Final = ("", "rtx ", "rx ", "arc ")
"""What people leave out of a name."""


class KnownGpu(NamedTuple):
    """Published figures of a card; None where it has none of its own (memory that is the host's) or several.

    Args:
        name: the name asked for, without trademarks.
        memory_bps: bytes per second of its memory.
        f16_flops: FLOP per second.
        pcie: generation and lanes of its connector.
    """

    name: str
    memory_bps: float | None
    f16_flops: float | None
    pcie: tuple[int, int] | None


@lru_cache(maxsize=64)
def resident_threads(name: str | None) -> int | None:
    """Threads that an NVIDIA card of that name keeps resident (``known_sms``); None for names it does not list."""
    if not name:
        return None
    key = key_of(name)
    return next((RESIDENT_THREADS[k] for family in _FAMILIES if (k := family + key) in RESIDENT_THREADS), None)


def known_gpu(name: str | None, total_bytes: int) -> KnownGpu | None:
    """The card of that name; of two with one name, the one whose memory is nearest to ``total_bytes``."""
    if not name:
        return None
    key = key_of(name)
    keys = [family + key for family in _FAMILIES]
    rows = [row for row in (*NVIDIA, *AMD, *INTEL, *SHARED) if row[0] in keys]
    if not rows:
        return None
    _, _, memory, flops, pcie = min(rows, key=lambda row: abs((row[1] or 0) - total_bytes / GIB))
    label = " ".join(_BRACKETS.sub(" ", name[:MAX_NAME]).split())
    return KnownGpu(label, memory and memory * 1e9, flops and flops * 1e12, pcie)


def key_of(name: str) -> str:
    """A driver's or a person's spelling → the key of the table: ``NVIDIA GeForce RTX 3090Ti`` → ``rtx 3090 ti``."""
    text = _BRACKETS.sub(" ", name[:MAX_NAME].lower())
    text = _MEMORY.sub(" ", re.sub(r"[^a-z0-9]", " ", text))
    words: list[str] = []
    for word in text.split():
        parts = _WORD.fullmatch(word)
        words += [part for part in (parts.groups() if parts else (word,)) if part and part not in _NOISE]
    return " ".join(words)
