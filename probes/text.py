"""Text from outside, made safe to keep and to print."""

from __future__ import annotations


def clean(text: str, limit: int = 200) -> str:
    """One line of printable characters: anything else becomes a space, runs of spaces shrink to one.

    Args:
        limit: characters kept; longer text ends in an ellipsis.
    """
    kept = "".join(c if c.isprintable() else " " for c in text[: 4 * limit])
    line = " ".join(kept.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def printable(text: str) -> str:
    """The same text with every character that must not reach a terminal replaced; blanks are kept."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def whole(text: str | None) -> int | None:
    """A non-negative decimal integer, or None if the text is anything else."""
    digits = (text or "").strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else None


def cpu_list(text: str) -> frozenset[int] | None:
    """A kernel CPU or node list, ``"0-7,16"`` → ids; None if it is empty or not such a list.

    Source: Documentation/admin-guide/cputopology.rst, "list format".
    """
    ids: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        low = whole(first)
        high = whole(last) if last else low
        if low is None or high is None or not low <= high <= 65535:
            return None
        ids.update(range(low, high + 1))
    return frozenset(ids) or None
