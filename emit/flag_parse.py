"""A user's own llama.cpp command line → settings: every spelling of the table, old ones too."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from emit.dialect import Dialect, dialect_of
from emit.flag_resolve import Raw, resolve
from emit.flag_spell import normal, setting_of
from emit.flag_table import FLAGS, READ_ONLY, Flag, Kind, spellings
from emit.flag_values import AUTO_WORDS, FALSE_WORDS, TRUE_WORDS, read
from emit.flag_words import OTHER_ARITY, REMOVED
from planner.errors import OptionError
from planner.facts.machine import Machine
from planner.facts.model import Model
from planner.plans.settings import Settings, Tool

_ENV: Final = re.compile(r"[A-Z_][A-Z0-9_]*=.*", re.DOTALL)
_ONE_OFF: Final = TRUE_WORDS | FALSE_WORDS | AUTO_WORDS


@dataclass(frozen=True, slots=True)
class ParsedFlags:
    """What a command line says.

    Args:
        settings: every setting, defaults of the tool filled in.
        given: ``(flag as typed, value)`` in order; the value is empty for a switch.
        unknown: flags that no table knows: llama.cpp stops at them.
        model_path: value of ``-m``; None if it was not given.
        fit: value of ``-fit``; None if it was not given.
        items: ``(setting, value as read)`` in order, those of the environment first.
    """

    settings: Settings
    given: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]
    model_path: str | None
    tool: Tool
    dialect: Dialect
    fit: bool | None = None
    items: tuple[tuple[str, Any], ...] = ()

    def find(self, *settings: str) -> tuple[str, str] | None:
        """The last given flag of one of these settings, with its value."""
        return next(((f, v) for f, v in reversed(self.given) if setting_of(f) in settings), None)

    def has(self, *settings: str) -> bool:
        return self.find(*settings) is not None


@dataclass(slots=True)
class _Reader:
    """State of one pass over the tokens."""

    tool: Tool
    rows: dict[str, tuple[Flag, bool]]
    others: dict[str, int]
    raw: Raw = field(default_factory=Raw)
    given: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    problems: list[tuple[str, str, str]] = field(default_factory=list)

    def take(self, flag: Flag, name: str, text: str) -> None:
        """Read one flag's value; a wrong one becomes a problem."""
        self.given.append((name, text))
        try:
            self.raw.add(flag.setting, read(flag, text, self.tool))
        except ValueError as error:
            self.problems.append((name, str(error), repr(text)))


def parse_argv(
    tokens: tuple[str, ...],
    model: Model,
    machine: Machine,
    tool: Tool = Tool.SERVER,
    *,
    build: int | None = None,
) -> ParsedFlags:
    """Read a command line of llama.cpp, with or without the program's name and ``LLAMA_ARG_X=…`` before it.

    Args:
        tool: whose defaults and separators apply.
        build: read as this build instead of the machine's engine.

    Raises:
        OptionError: every wrong value at once, each with flag, expected and found.
    """
    dialect = dialect_of(machine, build)
    reader = _Reader(tool, _index(tool), OTHER_ARITY[tool])
    rest = _environment(reader, [token for token in tokens if token.strip("\\\r\n")])
    rest = _program(reader, rest)
    position = 0
    while position < len(rest):
        position = _step(reader, rest, position)
    settings, problems = resolve(reader.raw, model, machine, tool, dialect)
    _raise(reader.problems or list(problems))
    path, fit = reader.raw.last("model"), reader.raw.last("fit")
    return ParsedFlags(
        settings=settings,
        given=tuple(reader.given),
        unknown=tuple(dict.fromkeys(reader.unknown)),
        model_path=None if path is None else str(path),
        tool=tool,
        dialect=dialect,
        fit=None if fit is None else fit == "on",
        items=tuple(reader.raw.items),
    )


def rewritten(parsed: ParsedFlags, fix: tuple[str, ...], model: Model, machine: Machine) -> Settings | None:
    """What a command line comes to with ``fix`` written in place of its flags of the same settings.

    None if that cannot be read.
    """
    reader = _Reader(parsed.tool, _index(parsed.tool), OTHER_ARITY[parsed.tool])
    position = 0
    while position < len(fix):
        position = _step(reader, list(fix), position)
    replaced = {name for name, _ in reader.raw.items}
    kept = [(name, value) for name, value in parsed.items if name not in replaced]
    settings, problems = resolve(Raw(kept + reader.raw.items), model, machine, parsed.tool, parsed.dialect)
    return None if problems or reader.problems or reader.unknown else settings


def _index(tool: Tool) -> dict[str, tuple[Flag, bool]]:
    """Spelling → flag and whether the spelling says True."""
    found: dict[str, tuple[Flag, bool]] = {}
    for row in (*FLAGS, *READ_ONLY):
        found |= {name: (row, True) for name in spellings(row, tool)}
        if tool is not Tool.BENCH and tool in row.tools:
            found |= {name: (row, False) for name in row.negative}
    return found


def _environment(reader: _Reader, tokens: list[str]) -> list[str]:
    """Take leading ``NAME=value`` words; llama.cpp reads its variables before the flags (arg.cpp:787, b11434)."""
    names = {row.env: row for row in (*FLAGS, *READ_ONLY) if row.env}
    if tokens and tokens[0] == "env":
        tokens = tokens[1:]
    while tokens and _ENV.fullmatch(tokens[0]):
        name, _, text = tokens.pop(0).partition("=")
        negated = name.replace("LLAMA_ARG_NO_", "LLAMA_ARG_")
        if name in names:
            reader.take(names[name], names[name].names[0], text)
        elif negated in names and names[negated].negative:
            reader.take(names[negated], names[negated].negative[0], "0")
    return tokens


def _program(reader: _Reader, tokens: list[str]) -> list[str]:
    """Drop the program's name, which must be the tool's."""
    if not tokens or tokens[0].startswith("-"):
        return tokens
    name = re.split(r"[\\/]", tokens[0])[-1].removesuffix(".exe")
    if name != reader.tool.value and name in {tool.value for tool in Tool}:
        reader.problems.append((name, f"flags of {reader.tool.value}", f"a command of {name} (add --tool {name})"))
    return tokens[1:]


def _step(reader: _Reader, tokens: list[str], position: int) -> int:
    """Read the flag at ``position``; the position behind it."""
    name = normal(tokens[position])
    if name in reader.rows:
        return _known(reader, tokens, position, name)
    if not name.startswith("-") or name == "-":
        reader.problems.append((repr(name), "a flag, starting with -", "a word on its own"))
        return position + 1
    head, equals, _ = name.partition("=")
    if equals and (head in reader.rows or head in reader.others):
        reader.problems.append((head, "its value as the next word", repr(name)))
        return position + 1
    following = tokens[position + 1 : position + 2]
    looks_like_value = bool(following) and not re.match(r"--?[A-Za-z]", following[0])
    n_values = reader.others.get(name, int(looks_like_value))
    if name not in reader.others and name not in REMOVED:
        reader.unknown.append(name)
    reader.given.append((name, " ".join(tokens[position + 1 : position + 1 + n_values])))
    return position + 1 + n_values


def _known(reader: _Reader, tokens: list[str], position: int, name: str) -> int:
    flag, positive = reader.rows[name]
    following = tokens[position + 1 : position + 2]
    if flag.kind is Kind.SWITCH and reader.tool is not Tool.BENCH:
        reader.given.append((name, ""))
        reader.raw.add(flag.setting, positive)
        return position + 1
    if flag.setting == "flash_attn" and (not following or following[0] not in _ONE_OFF):
        if following and not following[0].startswith("-"):
            reader.take(flag, name, following[0])
            return position + 2
        reader.given.append((name, ""))
        reader.raw.add("flash_attn", "on")
        return position + 1
    if not following:
        reader.problems.append((name, "a value", "nothing after it"))
        return position + 1
    if flag.bench_negative and reader.tool is Tool.BENCH:
        flipped = {"0": "1", "1": "0"}.get(following[0], following[0])
        reader.take(flag, name, flipped)
        reader.given[-1] = (name, following[0])
    else:
        reader.take(flag, name, following[0])
    return position + 2


def _raise(problems: list[tuple[str, str, str]]) -> None:
    if len(problems) == 1:
        flag, expected, found = problems[0]
        raise OptionError(flag, expected=expected, found=found)
    if problems:
        lines = "".join(f"\n  {flag}: expected {expected}, found {found}" for flag, expected, found in problems)
        raise OptionError("llama.cpp flags", found=f"{len(problems)} that cannot be read{lines}")
