"""Text that came out of a file: the one place that makes it safe to print, or refuses it."""

from __future__ import annotations

from typing import Final

from planner.errors import ModelFileError

_LONGEST_SHOWN: Final = 160


def printable(text: str | bytes, limit: int = _LONGEST_SHOWN) -> str:
    """Any text → one printable line of at most ``limit`` characters.

    Control characters, bidirectional and other format controls, line separators, lone surrogates and
    bytes that are not UTF-8 become ``\\xNN`` or ``\\uNNNN``.
    """
    if isinstance(text, bytes):
        text = text[: 4 * limit].decode("utf-8", "backslashreplace")
    if not text.isprintable():
        text = "".join(c if c.isprintable() else _escape(c) for c in text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quoted(text: str | bytes) -> str:
    """``printable`` text in quotes."""
    return f"'{printable(text)}'"


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def checked_name(raw: bytes, subject: str, what: str) -> str:
    """Bytes of a key or tensor name → str.

    Raises:
        ModelFileError: empty, not UTF-8, or with characters that do not print.
    """
    name = checked_utf8(raw, subject, what)
    if not name or not name.isprintable():
        found = quoted(raw) if raw else "an empty one"
        raise ModelFileError(subject, expected=f"a {what} of printable characters", found=found)
    return name


def checked_utf8(raw: bytes, subject: str, what: str) -> str:
    """Bytes → str.

    Raises:
        ModelFileError: not UTF-8.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelFileError(subject, expected=f"UTF-8 in {what}", found=quoted(raw)) from None
