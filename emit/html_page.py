"""Plan → one page of HTML that needs nothing else: no script, no address, every word escaped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from emit import argv, html_memory, refusal, shell, wording
from emit.flag_spell import Spelled, flag_of
from emit.html_words import code, items, table, text
from planner.plans.compare import fate
from planner.plans.decision import Decision
from planner.plans.plan import Candidate, Plan

_STYLE: Final = """\
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
pre { background: var(--soft); padding: 1rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .2rem .8rem .2rem 0; }
th, td { border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
.numbers td, .numbers th { text-align: right; } .numbers td:first-child, .numbers th:first-child { text-align: left; }
code { overflow-wrap: anywhere; } .dim { opacity: .7; }
.verdict { border-left: .4rem solid #2a2; padding-left: .8rem; } .pages { border-color: #c80; }
.refused { border-color: #c22; } details { margin: .4rem 0; }
"""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def html_page(plan: Plan) -> str:
    """The report: verdict, command, memory with bars, every decision with its reasons and what else was considered.

    Raises:
        EngineError: this engine cannot do what the settings ask.
    """
    title = f"{wording.clean(plan.model.name or plan.model.arch)}: {plan.verdict.value}"
    style = html_memory.STYLE + _STYLE
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{text(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
    )
    return head + "\n".join(_body(plan)) + "\n</body>\n</html>\n"


def _body(plan: Plan) -> Iterator[str]:
    yield f"<h1>{text(plan.model.name or plan.model.arch)}</h1>"
    yield f'<p class="verdict {plan.verdict.value}">{text(wording.headline(plan))}</p>'
    if plan.refusal is None:
        yield f"<h2>Command</h2>\n{_command(plan)}\n<h2>Why</h2>"
        yield table(("flag", "value", "reason"), (_flag(plan, item) for item in argv.flags(plan)))
    elif plan.refusal.nearest is not None:
        near = plan.refusal.nearest
        yield f"<h2>What would fit</h2>\n{_command(plan, near)}\n<p>{text(wording.speed(near))}</p>"
        if minds := refusal.minded(plan, near):
            yield items(minds)
    yield f"<h2>Memory</h2>\n{html_memory.memory(plan)}"
    if plan.lint:
        findings = ((item.flag, f"{item.message} [{item.code}]", item.fix or "") for item in plan.lint)
        yield "<h2>Findings</h2>\n" + table(("flag", "finding", "write"), findings)
    if cautions := argv.cautions(plan):
        yield "<h2>Cautions</h2>\n" + items(f"{item.message} [{item.code}]" for item in cautions)
    if plan.exchange:
        yield "<h2>The next step of a knob</h2>\n" + items(f"{item.change}: {item.effect}" for item in plan.exchange)
    if plan.decisions:
        yield "<h2>Decisions</h2>"
        yield from map(_decision, plan.decisions)


def _command(plan: Plan, candidate: Candidate | None = None) -> str:
    return code(shell.command(argv.program(plan), argv.flags(plan, candidate)).split("\n"))


def _flag(plan: Plan, item: Spelled) -> tuple[str, str, str]:
    decided = [decision for decision in plan.decisions if decision.setting == item.setting]
    said = "; ".join(decision.headline for decision in decided) or item.reason
    lossy = "" if all(decision.lossless for decision in decided) else " (lossy)"
    guess = " (assumed)" if any(decision.confidence == "assumed" for decision in decided) else ""
    return item.flag, item.value, said + lossy + guess


def _decision(item: Decision) -> str:
    name = flag_of(item.setting) or item.setting
    lossy = "" if item.lossless else ", lossy"
    title = f"<code>{text(name)} {text(wording.decided(item))}</code> {text(item.headline)}"
    parts = [f"<details>\n<summary>{title}</summary>"]
    parts.append(f'<p class="dim">rule {text(item.rule)}, {item.confidence.value}{lossy}</p>')
    because = ((e.fact, wording.evidence(e), e.source.value) for e in item.because)
    parts.append(table(("because", "is", "source"), because))
    if item.alternatives:
        others = ((wording.scalar(o.value), fate(o), o.detail) for o in item.alternatives)
        parts.append(table(("instead of", "would", "how"), others))
    return "\n".join((*parts, "</details>"))
