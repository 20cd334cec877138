"""Plan → a systemd user unit.

``ExecStart=`` unquotes and unescapes words, then expands ``%`` and, but for the program, ``$`` (systemd.service(5)).
"""

from __future__ import annotations

import re
from typing import Final

from emit import argv, service, wording
from planner.errors import OptionError
from planner.facts.machine import Os
from planner.facts.workload import Target
from planner.plans.plan import Plan

_BARE: Final = re.compile(r"[A-Za-z0-9_@:,./=+-]+")
_SHELL: Final = ("/bin/sh", "-c", 'exec "$0" "$@"')
"""Starts a program whose path systemd would not take: it allows no quotes or backslashes there."""


def systemd(plan: Plan) -> str:
    """The unit.

    Raises:
        EngineError: this engine cannot do what the settings ask.
        OptionError: a machine without systemd, or an engine without a server.
    """
    service.serving("systemd", plan, Target.LLAMA_CPP, Target.IK)
    if plan.machine.os is not Os.LINUX:
        raise OptionError("--format systemd", expected="a Linux machine", found=plan.machine.os.value)
    name, program = service.name(plan), argv.program(plan)
    install = f"Put it at ~/.config/systemd/user/{name}.service, then: systemctl --user enable --now {name}"
    locked = service.locks_memory(plan)
    notes = [install, *(["LimitMEMLOCK= works up to the hard limit of the user's session."] if locked else [])]
    text = "".join(f"# {line}\n" for line in service.remarks(plan, *notes))
    if plan.refusal is not None:
        return text
    first = [program] if _BARE.fullmatch(program) else [*_SHELL, program]
    lines = [" ".join(map(word, first)), *(" ".join(map(word, item.tokens)) for item in argv.flags(plan))]
    return (
        f"{text}[Unit]\nDescription=llama-server: {name}\n\n"
        f"[Service]\nExecStart={(' ' + chr(92) + chr(10) + '  ').join(lines)}\nRestart=on-failure\n"
        + ("LimitMEMLOCK=infinity\n" if locked else "")
        + "\n[Install]\nWantedBy=default.target\n"
    )


def word(token: str) -> str:
    """A word of ``ExecStart=`` that reaches the program as it was."""
    if _BARE.fullmatch(token):
        return token
    return '"' + "".join(map(_escaped, token)) + '"'


def _escaped(char: str) -> str:
    if char in ('"', "\\"):
        return "\\" + char
    if char in "%$":
        return char * 2
    if wording.is_unsafe(char):
        return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
    return char
