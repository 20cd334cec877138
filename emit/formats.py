"""Forms of a plan other than text on a terminal."""

from __future__ import annotations

from enum import StrEnum

from planner.plans.plan import Plan


class Format(StrEnum):
    """``--format``."""

    TEXT = "text"
    JSON = "json"
    SH = "sh"
    PS1 = "ps1"
    ENV = "env"


def render(plan: Plan, form: Format) -> str:
    """A plan in one of the forms, ending with a newline.

    Raises:
        EngineError: this llama.cpp cannot do what the settings ask.
        ValueError: for ``TEXT``, which ``emit.text`` renders for a terminal.
    """
    if form is Format.JSON:
        from emit.json_v1 import plan_json

        return plan_json(plan)
    from emit import shell

    if form is Format.SH:
        return shell.sh(plan)
    if form is Format.PS1:
        return shell.ps1(plan)
    if form is Format.ENV:
        return shell.env(plan)
    raise ValueError("text is rendered by emit.text")
