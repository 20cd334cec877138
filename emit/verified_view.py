"""A verification as text for a terminal: verdict, observed against predicted, trials, steps back, the command."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from emit import text, wording
from emit.sections import bullets, section
from planner import units
from planner.plans.verified import Compared, Finding, Forecast, Foreseen, Rates, Trial, Verification

_STYLE = {
    Finding.VERIFIED: "bold green",
    Finding.SLOWER: "bold yellow",
    Finding.COLLAPSED: "bold red",
    Finding.FAILED: "bold red",
}


def verification_view(found: Verification, *, why: bool = False) -> RenderableType:
    """The verdict, then what was checked, then the command that stands.

    Args:
        why: add the decisions behind the settings.

    Raises:
        EngineError: this llama.cpp cannot do what the settings ask.
    """
    opening = f"{found.word.capitalize()}: {wording.clean(found.reason)}."
    parts: list[RenderableType] = [Text(opening, style=_STYLE[found.finding])]
    if found.url:
        parts.append(Text(f"Serving at {wording.clean(found.url)}"))
    parts.append(Text())
    if found.lines:
        lines = [Text(wording.clean(line)) for line in found.lines]
        parts.append(section("What the engine said last", bullets(lines)))
    if found.compared:
        at = "" if found.at is None else f" (rates with {units.counted(found.at, 'token')} of prompt)"
        parts.append(section(f"Observed against predicted{at}", compared_table(found.compared)))
    if found.steps:
        words = [Text(f"{wording.clean(step.words)}: {wording.clean(step.reason)}") for step in found.steps]
        parts.append(section("Stepped back to", bullets(words)))
    if found.trials:
        parts.append(section("Trials", trials_table(found.trials)))
    notes = [Text(wording.clean(note)) for note in found.notes]
    if found.learned:
        earlier = ", from earlier runs" if found.learned.runs and not found.steady else ""
        notes.append(Text(f"the next plan{earlier}: {wording.correction(found.learned)}"))
    if notes:
        parts.append(section("Notes", bullets(notes)))
    if found.finding in (Finding.VERIFIED, Finding.SLOWER):
        parts.append(text.command(found.plan))
        if why:
            parts.append(section("Why", text.reasons(found.plan)))
    return Group(*parts)


def kept_words(found: Verification) -> str:
    """What of a verification is kept for the next plan; empty if nothing is."""
    learned = found.learned
    if learned is None:
        return ""
    rates = [c.term for c in found.compared if c.unit == "tok/s" and c.judged] if found.steady else []
    parts = ["the verdict", f"the speed of {' and '.join(rates)}" if rates else "no speed"]
    parts += ["the memory that devices needed beyond the prediction"] if learned.extra else []
    parts += [f"{name} {value}" for name, value in learned.kept]
    return wording.clean(", ".join(parts))


def foreseen_view(found: Foreseen) -> RenderableType:
    """``--dry-run``: what would be tried, and what everything takes."""
    look = (
        f"{units.counted(found.look_n, 'token')} of prompt: {_seconds(found.look_s)}"
        if found.look_n
        else "no room for a prompt"
    )
    parts: list[RenderableType] = [section("Would be looked at", Text(f"the first answer, then {look}"))]
    if not found.trials:
        return Group(*parts, Text("Nothing would be tried: no change of speed alone fits."))
    table = _grid("change", "predicted", "prompt", "takes", f"within {found.budget_s:,.0f} s", "because")
    for item in found.trials:
        attempt = item.attempt
        cells = (attempt.words, attempt.forecast, f"{item.prompt_n:,}", _seconds(item.seconds))
        table.add_row(*(Text(wording.clean(c)) for c in cells), Text(_fits(item)), Text(wording.clean(attempt.basis)))
    return Group(*parts, section("Would be tried, in this order (share of a turn, by predicted rates)", table))


def compared_table(items: tuple[Compared, ...]) -> Table:
    """One row per figure."""
    table = _grid("", "predicted", "observed", "")
    for item in items:
        if item.unit == "bytes":
            predicted, observed = units.mib(item.predicted.mid), units.mib(item.observed)
        else:
            predicted, observed = (
                wording.band(item.predicted, item.unit),
                units.duration(item.observed) if item.unit == "s" else f"{units.number(item.observed)} {item.unit}",
            )
        word = "more" if item.unit == "bytes" else "slower" if item.judged else "too short a prompt to tell"
        word = "" if item.within and item.judged else word
        table.add_row(Text(wording.clean(item.term)), Text(predicted), Text(observed), Text(word, style="bold yellow"))
    return table


def trials_table(items: tuple[Trial, ...]) -> Table:
    """One row per trial, with its rates before and after."""
    table = _grid("change", "prefill, decode before", "after (tok/s)", "pairs", "outcome")
    for item in items:
        outcome = Text("kept: " if item.kept else "dropped: ", style="bold green" if item.kept else "")
        table.add_row(
            Text(wording.clean(item.attempt.words)),
            Text(_rates(item.before)),
            Text(_rates(item.after)),
            Text(str(item.pairs)),
            outcome.append(wording.clean(item.reason), style="not bold default"),
        )
    return table


def _seconds(seconds: float) -> str:
    """As the budget beside them is given."""
    return f"{units.number(seconds)} s"


def _fits(item: Forecast) -> str:
    return "yes" if item.fits else "no"


def _rates(rates: Rates | None) -> str:
    return "" if rates is None else f"{units.number(rates.prefill_tps)}, {units.number(rates.decode_tps)}"


def _grid(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, overflow="fold")
    return table
