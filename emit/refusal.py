"""Nothing fits: what is short, by how much, and what would fit."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from emit import argv, memory_view, shell, wording
from emit.decision_view import decisions
from emit.flag_spell import flag_of, negates
from emit.sections import bullets, cautions, section
from planner import units
from planner.plans.plan import Candidate, Plan, Refusal, Shortfall, Verdict

_GIVEN_UP: Final = (
    "n_ctx", "n_parallel", "kv_unified", "override_tensor", "n_cpu_moe", "n_gpu_layers", "n_ubatch", "type_k", "type_v",
    "swa_full", "kv_offload", "no_host", "load_mode", "cache_ram_mib", "ctx_checkpoints",
)  # fmt: skip
"""Settings that a nearest plan may change, in the order they are named."""
_EXACT: Final = ("f32", "f16", "bf16")
"""Cache types that change no output."""


def refusal_view(plan: Plan, *, why: bool = False) -> RenderableType:
    """Shortfalls, the nearest plan that would fit with its command, memory of the closest attempt.

    Raises:
        EngineError: this llama.cpp cannot do what the settings ask.
        ValueError: the plan is no refusal.
    """
    if plan.refusal is None:
        raise ValueError("not a refusal")
    parts: list[RenderableType] = [Text(wording.headline(plan), style="bold red"), Text()]
    if plan.refusal.shortfalls:
        parts.append(section("Short of memory", _shortfalls(plan.refusal.shortfalls)))
    parts += nearest(plan, plan.refusal)
    parts.append(section("Memory of the closest attempt", memory_view.table(plan.chosen.memory)))
    parts += cautions(argv.cautions(plan))
    if why:
        parts.append(section("Every decision", decisions(plan.decisions)))
        parts.append(section("Memory, term by term", memory_view.terms(plan.chosen.memory)))
    return Group(*parts)


def _shortfalls(items: tuple[Shortfall, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("where")
    for name in ("needed", "available after headroom", "short"):
        table.add_column(name, justify="right")
    for item in items:
        short = item.needed_bytes - item.available_bytes
        where = "RAM" if item.device == "host" else wording.clean(item.device)
        table.add_row(Text(where), *map(units.mib, (item.needed_bytes, item.available_bytes, short)))
    return table


def nearest(plan: Plan, refusal: Refusal) -> list[RenderableType]:
    """The nearest plan that fits, what it gives up, and its command."""
    if refusal.nearest is None:
        return [Text("No relaxation of the request fits on this machine either.\n")]
    title = f"Nearest plan that fits: {_difference(plan.chosen, refusal.nearest)}; {wording.speed(refusal.nearest)}"
    text = shell.command(argv.program(plan), argv.flags(plan, refusal.nearest))
    minds = [Text(line) for line in minded(plan, refusal.nearest)]
    told: list[RenderableType] = [bullets(minds)] if minds else []
    return [Text(title, style="bold"), *told, Text(), Text(text, no_wrap=True, overflow="ignore"), Text()]


def minded(plan: Plan, nearest: Candidate) -> list[str]:
    """What the user should mind about a nearest plan: what it loses, pays in vain or reads from disk."""
    settings, trained = nearest.settings, plan.model.n_ctx_train
    found = []
    quantised = [kind for kind in (settings.type_k, settings.type_v) if kind not in _EXACT]
    if quantised:
        found.append(f"lossy: a cache of {quantised[0]} changes the output slightly")
    each = settings.n_ctx if settings.kv_unified else settings.n_ctx // max(settings.n_parallel, 1)
    if trained and each > trained:
        found.append(f"the model was trained on {units.counted(trained, 'token')}: a slot uses no more of its context")
    if nearest.verdict is Verdict.PAGES:
        found.append("RAM does not hold its experts: part of them is read from disk")
    return found


def _difference(chosen: Candidate, nearest: Candidate) -> str:
    """What the nearest plan gives up, in flags."""
    changed = []
    for name in _GIVEN_UP:
        before, after = getattr(chosen.settings, name), getattr(nearest.settings, name)
        if before != after:
            changed.append(_change(name, before, after))
    return ", ".join(changed) or "the same settings with other limits"


def _change(setting: str, before: object, after: object) -> str:
    """``"--n-cpu-moe 20 instead of 0"``; of a switch whether it stands there."""
    flag = flag_of(setting) or setting
    if isinstance(after, bool):
        return flag if after != negates(flag) else f"no {flag}"
    if isinstance(after, tuple):
        return f"{'another' if before else 'an'} {flag}" if after else f"no {flag}"
    return f"{flag} {after} instead of {before}"
