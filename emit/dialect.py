"""Which flags the llama.cpp at hand accepts: its own list, else its build number, else the newest build known."""

from __future__ import annotations

from typing import Final, NamedTuple

from emit.flag_table import NEWEST_BUILD, Flag, spellings
from planner.facts.machine import Machine
from planner.plans.plan import Caution
from planner.plans.settings import Tool

_EVERY_HELP_LISTS: Final = frozenset({"-m", "--model"})


class Dialect(NamedTuple):
    """What a llama.cpp understands.

    Args:
        build: its build number, or the newest known one when it is not known.
        flags: options its ``--help`` lists; a machine file may name only a few of them.
        assumed: True when nothing is known of the engine.
        embedded: True for llama-cpp-python, which has no programs and takes no flags.
    """

    build: int
    flags: frozenset[str] = frozenset()
    assumed: bool = False
    embedded: bool = False

    @property
    def lists_all(self) -> bool:
        """True if ``flags`` is a whole ``--help``: every one of them lists the model option."""
        return bool(self.flags & _EVERY_HELP_LISTS)

    def has(self, flag: Flag, tool: Tool) -> bool:
        """Does this llama.cpp know the flag in this tool?"""
        return bool(self.names(flag, tool))

    def names(self, flag: Flag, tool: Tool) -> tuple[str, ...]:
        """Its names for a flag in this tool, the one to print first; empty if it does not know the flag.

        The list is llama-server's, so llama-bench goes by the build number alone.
        """
        names = spellings(flag, tool)
        if names and tool is not Tool.BENCH:
            if self.flags.intersection((*names, *flag.negative)):
                return tuple(name for name in names if name in self.flags) or names
            if self.lists_all and tool is Tool.SERVER:
                return ()
        if (flag.since or 0) > self.build or (flag.until is not None and self.build >= flag.until):
            return ()
        return flag.formerly[:1] if flag.formerly and self.build < flag.formerly[1] else names


def dialect_of(machine: Machine, target_build: int | None = None) -> Dialect:
    """The dialect of the machine's engine, or of a build that the user targets instead."""
    if target_build is not None:
        return Dialect(target_build)
    engine = machine.engine
    if engine is None or (engine.build is None and not engine.flags):
        return Dialect(NEWEST_BUILD, assumed=True, embedded=engine is not None and engine.server is None)
    return Dialect(engine.build or NEWEST_BUILD, frozenset(engine.flags))


def caution(dialect: Dialect) -> Caution | None:
    """What is not known about the engine, or None."""
    if dialect.embedded:
        return Caution(
            "engine-embedded",
            f"llama-cpp-python was found; it has no llama-server, so flags are spelled for llama.cpp b{NEWEST_BUILD}. "
            "--llama PATH or --target bNNNNN takes another build.",
        )
    if dialect.assumed:
        return Caution(
            "engine-unknown",
            f"No llama.cpp is known: flags are spelled for b{NEWEST_BUILD}. An older build may refuse some; "
            "--target bNNNNN settles it, or --llama PATH on the machine itself.",
        )
    if dialect.build > NEWEST_BUILD and not dialect.lists_all:
        return Caution(
            "engine-newer",
            f"b{dialect.build} is newer than b{NEWEST_BUILD}, the newest build the flags were checked against.",
        )
    return None
