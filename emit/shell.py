"""Plan → a script for sh, for PowerShell, or environment variables of llama-server.

Each form gives back exactly the same words, whatever a path holds: a test runs them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from emit import argv, wording
from emit.flag_spell import Spelled
from emit.flag_table import FLAGS, READ_ONLY, Flag, Kind
from planner.errors import OptionError
from planner.facts.workload import Target
from planner.plans.plan import Plan

_BARE_PS: Final = re.compile(r"--?[A-Za-z][A-Za-z0-9-]*|[A-Za-z][A-Za-z0-9_]*|[0-9]+")
_PS_QUOTES: Final = re.compile("(['\u2018\u2019\u201a\u201b])")
ROWS: Final[dict[str, tuple[Flag, bool]]] = {
    name: (row, positive)
    for row in (*FLAGS, *READ_ONLY)
    for positive, names in ((True, row.names), (False, row.negative))
    for name in names
}
"""Spelling of llama.cpp → its row, and whether it says True."""


def sh(plan: Plan) -> str:
    """A POSIX shell script: the headline as comments, then one flag per line."""
    return _comments(plan, "#!/bin/sh\n") + command(argv.program(plan), argv.flags(plan)) + "\n"


def command(program: str, flags: Iterable[Spelled]) -> str:
    """The command for a POSIX shell, one flag per line, ready to paste."""
    lines = [quote_sh(program), *(" ".join(map(quote_sh, item.tokens)) for item in flags)]
    return " \\\n  ".join(lines)


def ps1(plan: Plan) -> str:
    """A PowerShell script with backticks at the line ends."""
    words = [f"& {quote_ps(argv.program(plan), always=True)}"]
    words += [" ".join(map(quote_ps, item.tokens)) for item in argv.flags(plan)]
    return _comments(plan, "") + " `\n  ".join(words) + "\n"


def env(plan: Plan) -> str:
    """``LLAMA_ARG_…=value`` lines; what llama-server reads from no variable stands in a comment.

    Values are quoted for sh (``set -a; . FILE``) and only where they need it.
    """
    if plan.workload.target is not Target.LLAMA_CPP:
        raise OptionError("--format env", expected="--target llama.cpp, which reads them", found=plan.workload.target)
    lines, rest = variables(argv.flags(plan))
    program = wording.clean(" ".join(map(quote_sh, (argv.program(plan), *rest))))
    note = f"# No variable exists for some flags. Start: {program}\n" if rest else f"# Start: {program}\n"
    body = "".join(f"{name}={quote_sh(value)}\n" for name, value in lines)
    return _comments(plan, "") + note + body


def variables(flags: Iterable[Spelled]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Flags as (variable, value) pairs, and the tokens that have no variable."""
    pairs: list[tuple[str, str]] = []
    rest: list[str] = []
    for item in flags:
        row, positive = ROWS[item.flag]
        if not row.env:
            rest += item.tokens
        elif row.kind is Kind.SWITCH:
            pairs.append((row.env, "1" if positive else "0"))
        else:
            pairs.append((row.env, item.value or "on"))
    return tuple(pairs), tuple(rest)


def quote_sh(token: str) -> str:
    """A word for a POSIX shell. Characters that steer a terminal are written with printf, newlines kept."""
    parts = []
    for unsafe, chars in groupby(token, key=lambda char: char != "\n" and wording.is_unsafe(char)):
        text = "".join(chars)
        if unsafe:
            octal = "".join(f"\\{byte:03o}" for byte in text.encode("utf-8", "surrogateescape"))
            parts.append(f"\"$(printf '{octal}')\"")
        else:
            parts.append(shlex.quote(text))
    return "".join(parts) or "''"


def quote_ps(token: str, *, always: bool = False) -> str:
    """A word for PowerShell: bare if it is plain, else in single quotes, characters that steer by number."""
    if not always and _BARE_PS.fullmatch(token):
        return token
    parts = []
    for unsafe, chars in groupby(token, key=lambda char: char != "\n" and wording.is_unsafe(char)):
        text = "".join(chars)
        if unsafe:
            parts += [f"[char]::ConvertFromUtf32({ord(char)})" for char in text]
        else:
            parts.append("'" + _PS_QUOTES.sub(r"\1\1", text) + "'")
    return parts[0] if len(parts) == 1 and parts[0][0] == "'" else f"({' + '.join(parts)})"


def _comments(plan: Plan, first: str) -> str:
    return first + "".join(f"# {line}\n" for line in argv.remarks(plan))
