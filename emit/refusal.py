"""Nothing fits: what is short, by how much, and what would fit."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from emit import argv, memory_view, shell, wording
from emit.decision_view import decisions
from planner import units
from planner.plans.plan import Candidate, Plan, Refusal, Shortfall

_GIVEN_UP: Final = (
    "n_ctx", "n_parallel", "kv_unified", "n_cpu_moe", "n_gpu_layers", "n_ubatch", "type_k", "type_v", "swa_full",
    "kv_offload", "no_host", "load_mode", "cache_ram_mib",
)  # fmt: skip
"""Settings that a nearest plan may change, in the order they are named."""


def refusal_view(plan: Plan, *, why: bool = False) -> RenderableType:
    """Shortfalls, the nearest plan that would fit with its command, memory of the closest attempt.

    Raises:
        EngineError: this llama.cpp cannot do what the settings ask.
        ValueError: the plan is no refusal.
    """
    if plan.refusal is None:
        raise ValueError("not a refusal")
    parts: list[RenderableType] = [Text(wording.headline(plan), style="bold red"), Text()]
    parts += [Text("Short of memory", style="bold"), Padding(_shortfalls(plan.refusal.shortfalls), (0, 0, 1, 2))]
    parts += nearest(plan, plan.refusal)
    parts += [Text("Memory of the closest attempt", style="bold")]
    parts += [Padding(memory_view.table(plan.chosen.memory), (0, 0, 1, 2))]
    for item in argv.cautions(plan):
        parts.append(Text(f"- {wording.clean(item.message)} [{item.code}]"))
    if why:
        parts += [Text("Every decision", style="bold"), Padding(decisions(plan.decisions), (0, 0, 1, 2))]
        parts += [Text("Memory, term by term", style="bold")]
        parts += [Padding(memory_view.terms(plan.chosen.memory), (0, 0, 1, 2))]
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
    return [Text(title, style="bold"), Text(), Text(text, no_wrap=True, overflow="ignore"), Text()]


def _difference(chosen: Candidate, nearest: Candidate) -> str:
    """What the nearest plan gives up, in settings."""
    changed = []
    for name in _GIVEN_UP:
        before, after = getattr(chosen.settings, name), getattr(nearest.settings, name)
        if before != after:
            changed.append(f"{name} {wording.scalar(before)} -> {wording.scalar(after)}")
    return ", ".join(changed) or "the same settings with other limits"
