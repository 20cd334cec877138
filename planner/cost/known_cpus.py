"""What a processor's name says: memory channels, the fastest memory it officially takes, PCIe, vector units.

Figures are those of one socket. A channel is 64 bits wide (two halves of DDR5 count as one). Faster memory by
overclocking profiles, slower memory of a board and empty slots are not in a name, so the result is an assumption.
Boards for Core of the 12th to 14th generation take DDR4-3200 or DDR5, which the name does not say either: the middle
of the two.

Sources: AMD's product pages per family, Intel ARK ("Max Memory Speed", "Max # of Memory Channels"), Apple's technical
specifications. Families whose memory depends on the laptop (DDR or LPDDR) are left out.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_NAME: Final = 128
"""Characters of a name that are looked at."""

CHANNEL_BYTES: Final = 8

_512, _256, _NEON = "avx512f", "avx2", "neon"
_RYZEN: Final = r"\bryzen (?:[3579] )?(?:pro )?"

_FAMILIES: Final = {
    # pattern of the name; channels; million transfers a second; PCIe generation; vector unit
    "threadripper": (
        (r"\b9\d{3}wx\b", 8, 6400, 5, _512),
        (r"\b7\d{3}wx\b", 8, 5200, 5, _512),
        (r"\b[35]\d{3}wx\b", 8, 3200, 4, _256),
        (r"\bthreadripper 9\d{3}x\b", 4, 6400, 5, _512),
        (r"\bthreadripper 7\d{3}x\b", 4, 5200, 5, _512),
        (r"\bthreadripper 3\d{3}x\b", 4, 3200, 4, _256),
        (r"\bthreadripper 2\d{3}w?x\b", 4, 2933, 3, _256),
        (r"\bthreadripper 1\d{3}x\b", 4, 2666, 3, _256),
    ),
    "epyc": (
        (r"\bepyc 9\w{2}5", 12, 6400, 5, _512),
        (r"\bepyc 9\w{2}4", 12, 4800, 5, _512),
        (r"\bepyc 8\w{2}4", 6, 4800, 5, _512),
        (r"\bepyc 4\w{2}5", 2, 5600, 5, _512),
        (r"\bepyc 4\w{2}4", 2, 5200, 5, _512),
        (r"\bepyc 7\w{2}[23]", 8, 3200, 4, _256),
        (r"\bepyc 7\w{2}1", 8, 2666, 3, _256),
    ),
    "ryzen": (
        (r"\bryzen ai max", 4, 8000, 4, _512),
        (_RYZEN + r"9\d{3}(?:x|x3d|hx)?\b", 2, 5600, 5, _512),
        (_RYZEN + r"8\d{3}[fg]e?\b", 2, 5200, 4, _512),
        (_RYZEN + r"7\d{3}(?:x|x3d|hx)?\b", 2, 5200, 5, _512),
        (_RYZEN + r"5\d{3}ge?\b", 2, 3200, 3, _256),
        (_RYZEN + r"5\d{3}(?:x|x3d|xt)?\b", 2, 3200, 4, _256),
        (_RYZEN + r"4\d{3}ge?\b", 2, 3200, 3, _256),
        (_RYZEN + r"3\d{3}ge?\b", 2, 2933, 3, _256),
        (_RYZEN + r"3\d{3}(?:x|xt)?\b", 2, 3200, 4, _256),
        (_RYZEN + r"2\d{3}(?:x|ge?)?\b", 2, 2933, 3, _256),
        (_RYZEN + r"1\d{3}x?\b", 2, 2666, 3, _256),
    ),
    "ultra": (
        (r"\bultra [3579] 2\d{2}(?:k|kf|f|t|hx)?\b", 2, 6400, 5, _256),
        (r"\bultra [3579] 2\d{2}v\b", 2, 8533, 5, _256),
    ),
    "xeon": (
        (r"\bxeon 69\d{2}p", 12, 6400, 5, _512),
        (r"\bxeon 6[57]\d{2}p", 8, 6400, 5, _512),
        (r"\bplatinum 85\d{2}", 8, 5600, 5, _512),
        (r"\bgold 65\d{2}", 8, 5200, 5, _512),
        (r"\bplatinum 84\d{2}|\bgold 64\d{2}", 8, 4800, 5, _512),
        (r"\bgold 54\d{2}", 8, 4400, 5, _512),
        (r"\bsilver 44\d{2}", 8, 4000, 5, _512),
        (r"\b(?:platinum 83|gold [56]3)\d{2}hl?\b", 6, 3200, 3, _512),
        (r"\bplatinum 83\d{2}|\bgold 63\d{2}", 8, 3200, 4, _512),
        (r"\bgold 53\d{2}", 8, 2933, 4, _512),
        (r"\bsilver 43\d{2}", 8, 2666, 4, _512),
        (r"\bplatinum [89]2\d{2}|\bgold 62\d{2}", 6, 2933, 3, _512),
        (r"\bgold 52\d{2}", 6, 2666, 3, _512),
        (r"\bplatinum 81\d{2}|\bgold 61\d{2}", 6, 2666, 3, _512),
        (r"\bgold 51\d{2}|\bsilver 4[12]\d{2}", 6, 2400, 3, _512),
        (r"\bw[579]-3[45]\d{2}", 8, 4800, 5, _512),
        (r"\bw[57]-2[45]\d{2}", 4, 4800, 5, _512),
        (r"\bw-33\d{2}", 8, 3200, 4, _512),
        (r"\bw-32\d{2}", 6, 2933, 3, _512),
        (r"\bw-31\d{2}", 6, 2666, 3, _512),
        (r"\bw-22\d{2}", 4, 2933, 3, _512),
        (r"\bw-21\d{2}", 4, 2666, 3, _512),
        (r"\be5-[124]6\d{2}[a-z]? v4\b", 4, 2400, 3, _256),
        (r"\be5-[124]6\d{2}[a-z]? v3\b", 4, 2133, 3, _256),
    ),
    "apple": (
        (r"\bm1 ultra\b", 16, 6400, 4, _NEON),
        (r"\bm1 max\b", 8, 6400, 4, _NEON),
        (r"\bm1 pro\b", 4, 6400, 4, _NEON),
        (r"\bm1\b", 2, 4266, 4, _NEON),
        (r"\bm[23] ultra\b", 16, 6400, 4, _NEON),
        (r"\bm2 max\b|\bm3 max 16$", 8, 6400, 4, _NEON),
        (r"\bm3 max 14$", 6, 6400, 4, _NEON),
        (r"\bm2 pro\b", 4, 6400, 4, _NEON),
        (r"\bm3 pro\b", 3, 6400, 4, _NEON),
        (r"\bm[23]\b(?! max)", 2, 6400, 4, _NEON),
        (r"\bm4 max 16$", 8, 8533, 4, _NEON),
        (r"\bm4 max 14$", 6, 8533, 4, _NEON),
        (r"\bm4 pro\b", 4, 8533, 4, _NEON),
        (r"\bm4\b(?! max)", 2, 7500, 4, _NEON),
    ),
    "core": (
        (r"\bi[79]-1[34]\d{3}(?:k|f|kf|ks|t|s|hx)?\b", 2, (3200 + 5600) // 2, 5, _256),
        (r"\bi5-1[34]600kf?\b", 2, (3200 + 5600) // 2, 5, _256),
        (r"\bi[35]-1[34]\d{3}(?:f|t)?\b", 2, (3200 + 4800) // 2, 5, _256),
        (r"\bi[3579]-12\d{3}(?:k|f|kf|ks|t|hx)?\b", 2, (3200 + 4800) // 2, 5, _256),
        (r"\bi[579]-11\d{3}(?:k|f|kf|t)?\b", 2, 3200, 4, _512),
        (r"\bi9-109\d0xe?\b", 4, 2933, 3, _512),
        (r"\bi[79]-10\d{3}(?:k|f|kf|t)?\b", 2, 2933, 3, _256),
        (r"\bi[35]-10\d{3}(?:k|f|kf|t)?\b", 2, 2666, 3, _256),
        (r"\bi[79]-[79][89]\d0xe?\b", 4, 2666, 3, _512),
        (r"\bi7-6[89]\d0[kx]\b", 4, 2400, 3, _256),
        (r"\bi[579]-[89]\d{3}(?:k|f|kf|ks|t)?\b", 2, 2666, 3, _256),
        (r"\bi3-[89]\d{3}(?:k|f|kf|t)?\b", 2, 2400, 3, _256),
        (r"\bi[357]-7\d{3}[kt]?\b", 2, 2400, 3, _256),
        (r"\bi[357]-6\d{3}[kt]?\b", 2, 2133, 3, _256),
    ),
}
"""Rows by a word of the name, first match wins; a Core is often named without that word, so it is the last."""


class KnownCpu(NamedTuple):
    """A family's figures; ``theoretical_bps`` is bytes per second of all channels of one socket."""

    name: str
    channels: int
    mega_transfers: int
    pcie: int
    isa: str

    @property
    def theoretical_bps(self) -> float:
        return self.channels * CHANNEL_BYTES * self.mega_transfers * 1e6


def known_cpu(name: str | None, cores: int | None = None) -> KnownCpu | None:
    """The family of that name; ``cores`` (physical) tells apart what Apple sells under one name."""
    if not name:
        return None
    label = " ".join(re.sub(r"\((?:r|tm)\)|®|™", "", name[:MAX_NAME], flags=re.IGNORECASE).split())
    text = re.sub(r" (?:cpu|processor)\b", "", label.lower()).replace("threadripper pro", "threadripper")
    text = f"{text} {cores}" if text.startswith("apple ") else text
    rows = next((rows for word, rows in _FAMILIES.items() if word in text), _FAMILIES["core"])
    found = next((row for row in rows if re.search(row[0], text)), None)
    return KnownCpu(label, *found[1:]) if found else None
