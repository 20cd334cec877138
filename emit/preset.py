"""Plan → a preset of llama-server's router mode (``--models-preset FILE``): one section, one key per flag.

A value ends at a line's end, ``;`` or ``#``, loses blanks around it and knows no quotes (common/preset.cpp,
13b56e2a). The router itself chooses where the model's server listens.
"""

from __future__ import annotations

from typing import Final

from emit import argv, service, shell, wording
from emit.dialect import dialect_of
from emit.flag_spell import Spelled, unsupported
from emit.flag_table import PRESETS, Kind
from planner.facts.workload import Target
from planner.plans.plan import Plan
from planner.plans.settings import Tool

_ROUTER: Final = ("host", "port")
"""Settings of the router, not of a model behind it."""


def preset(plan: Plan) -> str:
    """The INI file.

    Raises:
        EngineError: this llama.cpp has no router mode, or cannot do what the settings ask.
        OptionError: a value that no line of the file can hold.
    """
    service.serving("preset", plan, Target.LLAMA_CPP)
    dialect = dialect_of(plan.machine, plan.workload.target_build)
    if not dialect.has(PRESETS, Tool.SERVER):
        raise unsupported(PRESETS, dialect, Tool.SERVER)
    flags = argv.flags(plan)
    own = tuple(token for item in flags if item.setting in _ROUTER for token in item.tokens)
    start = " ".join(map(shell.quote_sh, (argv.program(plan), *own)))
    lines = [f"# {line}" for line in service.remarks(plan, f"Start: {start} {PRESETS.names[0]} THIS-FILE")]
    lines += ["version = 1"]
    if plan.refusal is None:
        lines += ["", f"[{service.name(plan)}]"]
        lines += [f"{key} = {value}" for key, value in (_entry(item) for item in flags if item.setting not in _ROUTER)]
    return "\n".join(lines) + "\n"


def _entry(item: Spelled) -> tuple[str, str]:
    row, positive = shell.ROWS[item.flag]
    key = next(name for name in row.names if name.startswith("--"))[2:]
    if row.kind is Kind.SWITCH:
        return key, "true" if positive else "false"
    value = item.value or "on"
    service.holds("preset", (value,), lambda char: char in ";#" or wording.is_unsafe(char))
    if value != value.strip():
        raise service.unfit("preset", f"blanks around '{wording.clean(value)}'")
    return key, value
