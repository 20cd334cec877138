"""A topic of ``explain`` of which there is no manual, and those that are called like it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from emit.caution_table import CAUTIONS, VERDICTS
from emit.flag_page import flag_names
from planner.errors import OptionError


def no_topic(topic: str, rules: Iterable[str]) -> OptionError:
    """The error. Args: rules: ids of all rules."""
    known = [*rules, *(item.code for item in (*CAUTIONS, *VERDICTS)), *flag_names()]
    near = difflib.get_close_matches(topic, known, 2)
    advice = f"did you mean {' or '.join(near)}?" if near else "moeplan explain lists the rules"
    return OptionError(
        topic, expected="a rule, a flag, the code of a caution or a verdict", found="none of them", advice=advice
    )
