"""llama.cpp flags, spelled and parsed: the door to the flag table for everybody outside ``emit``."""

from __future__ import annotations

from emit.dialect import Dialect, caution, dialect_of
from emit.flag_parse import ParsedFlags, parse_argv
from emit.flag_spell import Spelled, flag_of, negates, normal, setting_of, spell, spelled

__all__ = [
    "Dialect",
    "ParsedFlags",
    "Spelled",
    "caution",
    "dialect_of",
    "flag_of",
    "negates",
    "normal",
    "parse_argv",
    "setting_of",
    "spell",
    "spelled",
]
