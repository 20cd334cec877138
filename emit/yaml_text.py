"""Words as YAML: always in double quotes, so that no plain-scalar rule of any YAML version applies."""

from __future__ import annotations

import unicodedata
from typing import Final

from emit import wording

_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quoted(text: str) -> str:
    """A double-quoted scalar on one line; what could steer a terminal or is no character is written by number."""
    return f'"{body(text)}"'


def body(text: str) -> str:
    """What stands between the quotes."""
    return "".join(_SHORT.get(char) or (_numbered(char) if _odd(char) else char) for char in text)


def comments(lines: tuple[str, ...]) -> str:
    """Comment lines; each is one line already."""
    return "".join(f"# {''.join(_numbered(char) if _odd(char) else char for char in line)}\n" for line in lines)


def _odd(char: str) -> bool:
    return wording.is_unsafe(char) or unicodedata.category(char) == "Cn"


def _numbered(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
