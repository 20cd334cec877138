"""The table of other flags against ``--help`` of b11549."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emit.flag_table import FLAGS, READ_ONLY, spellings
from emit.flag_words import OTHER_ARITY, REMOVED
from planner.plans.settings import Tool

HELP = Path(__file__).parent / "help"


def declared(tool: Tool) -> dict[str, bool]:
    """Option → whether a value follows, read from the help."""
    found: dict[str, bool] = {}
    for line in (HELP / f"{tool.value}-b11549.txt").read_text().splitlines():
        body = line.strip() if tool is Tool.BENCH else line
        if not re.match(r"--?[A-Za-z]", body):
            continue
        head = body if tool is Tool.BENCH or body[39:40].strip() else body[:40]
        words = re.split(r"[,\s]+", head.strip())
        names = []
        for word in words:
            if not re.fullmatch(r"--?[A-Za-z][A-Za-z0-9.-]*", word):
                break
            names.append(word)
        found |= dict.fromkeys(names, len(words) > len(names))
    return found


@pytest.mark.parametrize("tool", [Tool.SERVER, Tool.FIT_PARAMS, Tool.BENCH])
def test_every_option_of_the_help_is_known(tool: Tool) -> None:
    ours = {name for flag in (*FLAGS, *READ_ONLY) for name in (*spellings(flag, tool), *flag.negative)}
    unknown = set(declared(tool)) - ours - set(OTHER_ARITY[tool]) - set(REMOVED)
    assert unknown == set()


@pytest.mark.parametrize("tool", [Tool.SERVER, Tool.FIT_PARAMS])
def test_values_follow_where_the_help_says(tool: Tool) -> None:
    help_says = declared(tool)
    for name, arity in OTHER_ARITY[tool].items():
        assert help_says[name] is bool(arity), name


def test_no_flag_is_in_both_tables() -> None:
    for tool in Tool:
        ours = {name for flag in (*FLAGS, *READ_ONLY) for name in spellings(flag, tool)}
        assert not ours & set(OTHER_ARITY[tool])
