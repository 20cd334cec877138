"""``moeplan demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from planner import units
from planner.cli.guard import note, product

_HOW_TO_TALK = (
    "For the demo that answers in words (846 MB): pip install '.[demo]' in a clone of moeplan, then moeplan demo again."
)


def demo(
    folder: Annotated[str, typer.Argument(metavar="[DIR]", help="Where to write it.", show_default=False)] = ".",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr.")] = False,
) -> None:
    """Write a small working MoE GGUF, and print its path.

    With the extra `demo` it answers in words (846 MB); without it, its weights are random (7 MB).
    """
    from planner import pipeline

    model = pipeline.write_demo(folder)
    product(model.path)
    if quiet:
        return
    state = "written" if model.written else "already there"
    shape = f"{model.n_expert} experts, {model.n_expert_used} used per token"
    voice = "it answers in words" if model.talks else "its weights are random, so its words are, too"
    note(f"{state}: {units.size(model.n_bytes)}, {shape}; {voice}")
    if not model.talks:
        note(_HOW_TO_TALK)
    note(f"next: moeplan --auto {model.path}")
