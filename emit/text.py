"""A plan, a refusal or a check as text for a terminal.

The views are Rich renderables. Print them with ``console.print(view, crop=False)``: then the command keeps its
lines whole, however narrow the terminal, and can be copied.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from emit import argv, memory_view, refusal, sections, shell, wording
from emit.decision_view import decisions
from emit.flag_spell import Spelled
from emit.sections import section
from planner import units
from planner.plans.decision import Decision
from planner.plans.plan import Candidate, Plan, Verdict

_STYLE = {Verdict.FITS: "bold green", Verdict.PAGES: "bold yellow", Verdict.REFUSED: "bold red"}


def plan_view(plan: Plan, *, why: bool = False) -> RenderableType:
    """The answer: headline, command, a reason per flag, memory, cautions, exchange rates.

    Args:
        why: add all evidence, alternatives and memory terms.

    Raises:
        EngineError: this llama.cpp cannot do what the settings ask.
    """
    if plan.refusal is not None:
        return refusal.refusal_view(plan, why=why)
    parts: list[RenderableType] = [headline(plan), *verified(plan), command(plan), section("Why", reasons(plan))]
    parts.append(section("Memory", memory_view.table(plan.chosen.memory, plan.oracle)))
    parts += notes(plan)
    if why:
        parts += [section("Every decision", decisions(plan.decisions))]
        parts += [section("Memory, term by term", memory_view.terms(plan.chosen.memory))]
    return Group(*parts)


def check_view(plan: Plan, *, why: bool = False) -> RenderableType:
    """What a user's own flags come to: verdict, findings with their fixes, memory. ``plan.lint`` must be set."""
    parts: list[RenderableType] = [headline(plan), *verified(plan), Text()]
    findings = plan.lint or ()
    if plan.refusal is not None:
        parts += refusal.nearest(plan, plan.refusal)
    parts.append(section("Findings", lint_table(plan)) if findings else Text("No findings.\n"))
    parts.append(section("Memory", memory_view.table(plan.chosen.memory, plan.oracle)))
    parts += notes(plan)
    if why:
        parts += [section("Memory, term by term", memory_view.terms(plan.chosen.memory))]
    return Group(*parts)


def headline(plan: Plan) -> Text:
    """The verdict in one sentence."""
    verdict = Verdict.REFUSED if plan.chosen.shortfalls else plan.verdict
    return Text(wording.headline(plan), style=_STYLE[verdict])


def verified(plan: Plan) -> list[RenderableType]:
    """What earlier verified runs taught this plan, in a line; nothing without any."""
    known = plan.verified
    if known is None:
        return []
    what = "Verified" if known.exact else "Its family of models was verified"
    what = "It or its family of models ran" if known.slower else what
    slower = ", slower than predicted" if known.slower else ""
    depth = f", up to {units.counted(known.depth, 'token')} of prompt" if known.depth else ""
    return [Text(f"{what} on {known.when}{slower}{depth}: {wording.correction(known)}.")]


def command(plan: Plan, candidate: Candidate | None = None) -> RenderableType:
    """The command for a POSIX shell, never wrapped."""
    text = shell.command(argv.program(plan), argv.flags(plan, candidate))
    return Group(Text(), Text(text, no_wrap=True, overflow="ignore"), Text())


def reasons(plan: Plan) -> Table:
    """One row per flag of the command; choices that are no flag come last."""
    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("flag", no_wrap=True)
    table.add_column("value", overflow="fold", max_width=28)
    table.add_column("reason", overflow="fold", ratio=1)
    by_setting: dict[str, list[Decision]] = {}
    for decision in plan.decisions:
        by_setting.setdefault(decision.setting, []).append(decision)
    for item in argv.flags(plan):
        table.add_row(Text(item.flag), Text(_value(item)), _reason(item.reason, by_setting.pop(item.setting, [])))
    for setting, left in by_setting.items():
        for decision in left:
            table.add_row(Text(f"({wording.clean(setting)})"), Text(wording.decided(decision)), _reason("", [decision]))
    return table


def lint_table(plan: Plan) -> Table:
    """Findings about a user's flags: the flag, what is wrong, what to write instead."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("flag", overflow="fold", max_width=18)
    table.add_column("finding", overflow="fold", ratio=2)
    table.add_column("write", overflow="fold", ratio=1)
    for item in plan.lint or ():
        finding = Text(wording.clean(item.message)).append(f" [{item.code}]", style="dim")
        fix = "" if item.fix is None else wording.clean(item.fix) or "(leave it out)"
        table.add_row(Text(wording.clean(item.flag)), finding, Text(fix, style="bold"))
    return table


def notes(plan: Plan) -> list[RenderableType]:
    """Cautions and exchange rates, where there are any."""
    parts = sections.cautions(argv.cautions(plan))
    if plan.exchange:
        lines = [Text(f"{wording.clean(item.change)}: {wording.clean(item.effect)}") for item in plan.exchange]
        parts.append(section("The next step of a knob", sections.bullets(lines)))
    return parts


def _value(item: Spelled) -> str:
    """The value; of a path only the file's name, the command above has it all."""
    text = item.value.replace("\\", "/").rsplit("/", 1)[-1] if item.setting == "model" else item.value
    return wording.clean(text)


def _reason(usual: str, decided: list[Decision]) -> Text:
    """The decisions' headlines with what the user should mind, or the flag's usual reason."""
    text = Text("; ".join(wording.clean(decision.headline) for decision in decided) or usual)
    if any(not decision.lossless for decision in decided):
        text.append(" (lossy)", style="yellow")
    if any(decision.confidence == "assumed" for decision in decided):
        text.append(" (assumed)", style="dim")
    return text
