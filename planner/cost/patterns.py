"""Regexes of tensor overrides: untrusted, so bounded before they are run."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

from planner.errors import OptionError

LONGEST = 512
_QUANTIFIED_GROUP = re.compile(r"[+*}]\)?[+*{]|\([^()]*[+*][^()]*\)[+*{]")
"""A repeat of something that itself repeats: what can take time without end."""

_OPEN_REPEAT = re.compile(r"(?<!\\)[+*]")
MOST_REPEATS = 4
"""Each open repeat multiplies the time by the length of a tensor name."""


@lru_cache(maxsize=4096)
def override_pattern(text: str) -> re.Pattern[str]:
    """Compile the left side of an ``-ot`` entry.

    llama.cpp takes ECMAScript regexes (``std::regex``); the common subset is read alike here.

    Raises:
        OptionError: too long, no regex, or with repeats inside repeats.
    """
    if len(text) > LONGEST:
        raise OptionError("-ot", expected=f"a regex of at most {LONGEST} characters", found=f"{len(text)}")
    if len(_OPEN_REPEAT.findall(text)) > MOST_REPEATS:
        raise OptionError(f"-ot {text}", expected=f"at most {MOST_REPEATS} of * and +", found="more")
    if _QUANTIFIED_GROUP.search(text):
        raise OptionError(f"-ot {text}", expected="no repeat inside a repeat", found="one, which may never end")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise OptionError(f"-ot {text}", expected="a regular expression", found=str(error)) from error
