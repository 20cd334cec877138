"""``--version`` of a llama.cpp program → upstream build number."""

from __future__ import annotations

import re
from typing import Final

_NEW: Final = re.compile(r"^version: \S+ \(build (\d{1,7}), commit", re.MULTILINE)
_OLD: Final = re.compile(r"^version: (\d{1,7}) \(", re.MULTILINE)
FIRST: Final = 1000
"""Below this it is no build number: 0 stands for "built without git", small ones count the commits of a shallow
clone. Upstream had passed b1046 when GGUF arrived."""


def parse(text: str) -> int | None:
    """``version: 0.6.0-dev (build 11549, commit …)`` (from v0.5.0) or ``version: 8123 (abc1234)`` (before).

    None if the text names no real build number. Source: common/build-info.cpp.in of b11312.
    """
    match = _NEW.search(text) or _OLD.search(text)
    return real(int(match[1])) if match else None


def real(number: int | None) -> int | None:
    """The number if it can be an upstream build, else None."""
    return number if number is not None and number >= FIRST else None


def answers(text: str) -> bool:
    """True if the text is a version as llama.cpp words it, whatever the number."""
    return bool(_NEW.search(text) or _OLD.search(text))
