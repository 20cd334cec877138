"""The flags that lead from a user's command line to settings that fit."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace
from typing import Final

from emit.flag_parse import rewritten
from emit.flag_spell import spelled
from emit.lint_case import Case
from planner.plans.settings import Settings

_NO_MEMORY: Final = ("threads", "threads_batch")
"""Settings on which no byte depends: they stay the user's."""


def nearest(case: Case) -> str | None:
    """Flags of the refusal's nearest plan, each in place of the user's flag of that setting; None where none help.

    The nearest plan is one of llama-server. Where the flags that stay would not give its settings (an ``-ot`` that
    has to go, a flag that this build lacks), nothing short of the whole plan is known to fit.
    """
    if case.nearest is None:
        return None
    own = {name: getattr(case.settings, name) for name in _NO_MEMORY}
    wanted = replace(case.nearest, **own)
    tokens = _tokens(case, wanted)
    if not tokens or rewritten(case.parsed, tokens, case.model, case.machine) != wanted:
        return None
    return shlex.join(tokens)


def _tokens(case: Case, wanted: Settings) -> tuple[str, ...]:
    """The differing settings as flags; beside ``-ot`` always ``--n-cpu-moe``, which must come after it."""
    names = (field.name for field in fields(Settings))
    changed = {name for name in names if getattr(case.settings, name) != getattr(wanted, name)}
    if "override_tensor" in changed:
        changed.add("n_cpu_moe")
    items = spelled(
        wanted,
        case.model,
        case.machine,
        build=case.plan.workload.target_build,
        lenient=True,
        explicit=frozenset(changed),
    )
    return tuple(token for item in items if item.setting in changed for token in item.tokens)
