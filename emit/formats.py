"""Forms of a plan other than text on a terminal."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from planner.plans.plan import Plan


class Format(StrEnum):
    """``--format``."""

    TEXT = "text"
    JSON = "json"
    SH = "sh"
    PS1 = "ps1"
    ENV = "env"
    PRESET = "preset"
    LLAMA_SWAP = "llama-swap"
    COMPOSE = "compose"
    SYSTEMD = "systemd"
    HTML = "html"


ELSEWHERE: Final = frozenset({Format.PRESET, Format.LLAMA_SWAP, Format.COMPOSE, Format.SYSTEMD})
"""Read by programs that run in another folder: paths in them must be whole."""


def render(plan: Plan, form: Format) -> str:
    """A plan in one of the forms, ending with a newline.

    Raises:
        EngineError: this engine cannot do what the settings ask.
        OptionError: the form cannot hold or start this plan.
        ValueError: for ``TEXT``, which ``emit.text`` renders for a terminal.
    """
    if form in (Format.SH, Format.PS1, Format.ENV):
        from emit import shell

        return {Format.SH: shell.sh, Format.PS1: shell.ps1, Format.ENV: shell.env}[form](plan)
    if form is Format.JSON:
        from emit.json_v1 import plan_json

        return plan_json(plan)
    if form is Format.HTML:
        from emit.html_page import html_page

        return html_page(plan)
    return _elsewhere(plan, form)


def _elsewhere(plan: Plan, form: Format) -> str:
    if form is Format.PRESET:
        from emit.preset import preset

        return preset(plan)
    if form is Format.LLAMA_SWAP:
        from emit.llama_swap import llama_swap

        return llama_swap(plan)
    if form is Format.COMPOSE:
        from emit.compose import compose

        return compose(plan)
    if form is Format.SYSTEMD:
        from emit.systemd import systemd

        return systemd(plan)
    raise ValueError("text is rendered by emit.text")
