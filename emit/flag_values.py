"""Text of a flag's value → value. Each reader raises ``ValueError`` with what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from emit.flag_table import Flag, Kind
from planner import units
from planner.cost.patterns import override_pattern
from planner.errors import OptionError
from planner.plans.settings import Tool

TRUE_WORDS: Final = frozenset({"on", "enabled", "true", "1"})
FALSE_WORDS: Final = frozenset({"off", "disabled", "false", "0"})
AUTO_WORDS: Final = frozenset({"auto", "-1"})
"""common/arg.cpp:1337-1347, b11434."""

_RANGE: Final = re.compile(r"([0-9]+)(?:-([0-9]+)(?:[+*]([0-9]+))?)?")


def read(flag: Flag, text: str, tool: Tool) -> object:
    """The value in the form ``resolve`` wants: int, bool, str, tuple of str, of float or of (regex, buffer).

    Raises:
        ValueError: the message says what was expected.
    """
    if tool is Tool.BENCH and flag.kind in (Kind.INT, Kind.LAYERS, Kind.CHOICE, Kind.SWITCH) and "," in text:
        raise ValueError("one value: check one configuration at a time")
    return _READERS[flag.kind](flag, text, tool)


def _int(flag: Flag, text: str, tool: Tool) -> int:
    try:
        return units.whole(text)
    except ValueError:
        raise ValueError("a whole number") from None


def _layers(flag: Flag, text: str, tool: Tool) -> int:
    if text in ("auto", "all"):
        return -1 if text == "auto" else -2
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text):
        raise ValueError("a whole number, auto or all")
    return int(text)


def _switch(flag: Flag, text: str, tool: Tool) -> bool:
    if text in TRUE_WORDS or text in FALSE_WORDS:
        return text in TRUE_WORDS
    raise ValueError("0 or 1")


def _choice(flag: Flag, text: str, tool: Tool) -> str:
    if not flag.choices or flag.setting == "flash_attn":
        for words, word in ((TRUE_WORDS, "on"), (FALSE_WORDS, "off"), (AUTO_WORDS, "auto")):
            if text in words and (word != "auto" or flag.choices):
                return word
        raise ValueError(f"one of {' '.join(flag.choices or ('on', 'off'))}")
    if text not in flag.choices:
        raise ValueError(f"one of {' '.join(flag.choices)}")
    return text


def _list(flag: Flag, text: str, tool: Tool) -> tuple[str, ...]:
    separator = "/" if tool is Tool.BENCH and flag.setting == "devices" else ","
    words = tuple(word.strip() for word in text.split(separator))
    if not all(words):
        raise ValueError(f"names separated by {separator}")
    return words


def _floats(flag: Flag, text: str, tool: Tool) -> tuple[float, ...]:
    """llama-server and the others split at ``,`` and ``/``, llama-bench at ``/`` and ``;`` within one test."""
    separators = "[/;]" if tool is Tool.BENCH else "[,/]+"
    try:
        values = tuple(units.real(word) for word in re.split(separators, text))
    except ValueError:
        raise ValueError("numbers, one per device") from None
    if not all(0 <= value < 1e30 for value in values):
        raise ValueError("shares of 0 or more")
    return values


def _overrides(flag: Flag, text: str, tool: Tool) -> tuple[tuple[str, str], ...]:
    entries = []
    for entry in text.split(";" if tool is Tool.BENCH else ","):
        pattern, equals, buffer = entry.partition("=")
        if not equals or not buffer:
            raise ValueError("REGEX=BUFFER entries (a comma ends an entry, so none inside the regex)")
        try:
            override_pattern(pattern)
        except OptionError as error:
            raise ValueError(f"a regex before = ({error.expected})") from None
        entries.append((pattern, buffer))
    return tuple(entries)


def _plain(flag: Flag, text: str, tool: Tool) -> str:
    return text


_READERS: Final[dict[Kind, Callable[[Flag, str, Tool], object]]] = {
    Kind.TEXT: _plain,
    Kind.INT: _int,
    Kind.LAYERS: _layers,
    Kind.SWITCH: _switch,
    Kind.CHOICE: _choice,
    Kind.LIST: _list,
    Kind.FLOATS: _floats,
    Kind.OVERRIDES: _overrides,
}


def largest(text: str) -> int:
    """Largest number of a llama-bench list: ``512,1024``, ``first-last``, ``first-last+step``, ``first-last*mult``.

    Raises:
        ValueError: not such a list.
    """
    best = 0
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or len(part) > 40:
            raise ValueError("numbers or ranges such as 512,1024 or 512-4096*2")
        best = max(best, int(match[1]), int(match[2] or 0))
    return best
