"""Plan → a model of llama-swap's ``config.yaml``.

llama-swap replaces ``${NAME}`` before it splits the command, drops lines that begin with ``#``, and splits by the rules
of POSIX shells or, on Windows, of Windows programs (mostlygeek/llama-swap internal/config, billziss-gh/golib shlex).
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from emit import argv, service, yaml_text
from planner.facts.machine import Os
from planner.facts.workload import Target
from planner.plans.plan import Plan

_PORT: Final = "${PORT}"
_BARE: Final = re.compile(r"[A-Za-z0-9_@%+=:,./\\-]+")


def llama_swap(plan: Plan) -> str:
    """The file with one model.

    Raises:
        EngineError: this engine cannot do what the settings ask.
        OptionError: a path with a line break, or an engine without a server.
    """
    service.serving("llama-swap", plan, Target.LLAMA_CPP, Target.IK)
    windows = plan.machine.os is Os.WINDOWS
    flags = argv.flags(plan)
    words = [(argv.program(plan),), *((item.flag, _PORT) if item.setting == "port" else item.tokens for item in flags)]
    lines = [" ".join(_word(token, windows=windows) for token in group) for group in words]
    note = "ttl: seconds without a request after which the model is unloaded; 0 keeps it."
    text = yaml_text.comments(tuple(line.replace("${", "$ {") for line in service.remarks(plan, note)))
    if plan.refusal is not None:
        return text + "models: {}\n"
    command = "\n      ".join(map(yaml_text.body, lines))
    return (
        f"{text}models:\n  {yaml_text.quoted(service.name(plan))}:\n"
        f'    cmd: "{command}"\n    proxy: "http://127.0.0.1:{_PORT}"\n    ttl: 0\n'
    )


def _word(token: str, *, windows: bool) -> str:
    """A word that the splitter gives back as it was; ``${`` never stands there unless it is the port's."""
    if token == _PORT:
        return token
    service.holds("llama-swap", (token,), "\n".__eq__)
    if not windows:
        return shlex.quote(token).replace("${", "$''{")
    if _BARE.fullmatch(token):
        return token
    escaped = re.sub(r'(\\*)("|\Z)', lambda found: found[1] * 2 + ('\\"' if found[2] else ""), token)
    return '"' + escaped.replace("${", '$"{"') + '"'
