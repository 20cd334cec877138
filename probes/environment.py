"""What a command gets of our environment."""

from __future__ import annotations

import os


def engine_arguments() -> tuple[str, ...]:
    """Variables of our environment that llama.cpp would read as arguments (common/arg.cpp, b11434)."""
    return tuple(sorted(name for name in os.environ if name.startswith("LLAMA_ARG_")))


def environment() -> dict[str, str]:
    """Ours for a command, without what would change an engine behind a plan's back."""
    dropped = frozenset(engine_arguments())
    return {name: value for name, value in os.environ.items() if name not in dropped}
