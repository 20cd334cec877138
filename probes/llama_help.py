"""``--help`` of a llama.cpp program → the option names it accepts."""

from __future__ import annotations

import re
from typing import Final

_OPTION: Final = re.compile(r"--?[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_IK_OPTIONS: Final = frozenset({"-fmoe", "--fused-moe", "-rtr", "--run-time-repack", "-amb", "-ser"})


def parse(text: str) -> tuple[str, ...]:
    """Option names, short and long, sorted.

    A line that starts with ``-`` (after at most eight blanks, as older builds indent) declares options: its
    comma-separated head up to the first word that is not an option. Every name of ``-a, --b, --no-b N`` counts.
    Source: common/arg.cpp ``common_arg::to_string`` of b11312 (older builds: ``|`` or ``,`` between names).
    """
    found: set[str] = set()
    for line in text.splitlines():
        body = line.strip()
        if not body.startswith("-") or len(line) - len(line.lstrip()) > 8:
            continue
        for word in re.split(r"[,|]?\s+|[,|]", body):
            if not _OPTION.fullmatch(word):
                break
            found.add(word)
    return tuple(sorted(found))


def is_ik(flags: tuple[str, ...]) -> bool:
    """True if the options are those of the fork ik_llama.cpp (two or more that upstream never had)."""
    return len(_IK_OPTIONS.intersection(flags)) >= 2
