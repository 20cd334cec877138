"""A problem and the rules → a plan or a refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.cost.behind import assumed_rates
from planner.cost.compute_buffer import MIRRORED_BUILDS
from planner.cost.confirm import CorrectedCost, Extra, larger
from planner.cost.evaluate import Evaluator, budgeted
from planner.cost.rates import rates_of
from planner.errors import OptionError, PolicyError
from planner.facts.outcome import BUSY, LAYER, ProbeReport
from planner.plans.decision import Confidence, Decision
from planner.plans.memory import total
from planner.plans.plan import Candidate, Caution, Plan, Verdict
from planner.plans.rule import Problem, Rule
from planner.plans.settings import Tool
from planner.search.engine import Search, search
from planner.search.exchange import exchange
from planner.search.neighbours import improved
from planner.search.pins import with_kept
from planner.search.refusal import closest, refuse
from planner.search.shifting import shifted

ATTEMPTS: Final = 2
"""Searches that leave repeated blocks out before one draws them all."""


def plan(problem: Problem, rules: tuple[Rule, ...], extra: Extra = ()) -> Plan:
    """Decide everything, or refuse.

    Args:
        extra: bytes per device that the engine is known to need beyond the prediction.

    Raises:
        PolicyError: a rule's explanation contradicts the settings that were chosen.
        OptionError: a pin that is not a setting.
    """
    problem = replace(problem, machine=budgeted(problem.machine, problem.workload))
    searched, found = settled(problem, rules, extra)
    kept = _verified(searched, found, extra) if found else None
    found = kept or found
    chosen = found or closest(searched)
    return Plan(
        machine=problem.machine,
        model=problem.model,
        workload=problem.workload,
        chosen=chosen,
        decisions=_explained(searched, rules, chosen, adopted=kept is not None) if found else (),
        exchange=exchange(searched, chosen) if found else (),
        cautions=searched.draft.cautions + cautions(problem, chosen),
        refusal=None if found else refuse(problem, rules, searched.evaluator, chosen),
        verified=problem.verified,
    )


def evaluator_of(problem: Problem, tool: Tool, extra: Extra, *, whole: bool = True) -> Evaluator:
    """Prices for a problem: with what the engine is known to need, and with what verified runs have taught."""
    verified = problem.verified
    more = larger(extra, verified.extra) if verified else extra
    cost = CorrectedCost(problem.model, problem.machine, tool, more, whole=whole)
    return Evaluator(cost, problem.workload, verified=verified)


def settled(problem: Problem, rules: tuple[Rule, ...], extra: Extra) -> tuple[Search, Candidate | None]:
    """The search, and the best it finds, priced with every block drawn.

    The search itself draws repeated blocks once. Where the whole graph needs more than fits, what it needs more is
    set aside and the search repeated.
    """
    padding: Extra = ()
    for last in (False,) * ATTEMPTS + (True,):
        rough = evaluator_of(problem, Tool.SERVER, extra if last else larger(extra, padding), whole=last)
        searched = search(problem, rules, rough)
        found = searched.best()
        found = found and shifted(searched, improved(searched, found))
        if found is None or not rough.cost.is_rough:
            break
        exact = evaluator_of(problem, Tool.SERVER, extra).candidate(found.settings, searched.draft.reserve)
        if exact.runs:
            return searched, exact
        padding = _beyond(exact, found, extra)
    return searched, found


def _beyond(whole: Candidate, rough: Candidate, extra: Extra) -> Extra:
    """Bytes per device that the whole graph needs more, what the engine is known to need included."""
    known = dict(extra)
    pairs = zip(whole.memory.devices, rough.memory.devices, strict=True)
    more = ((w.id, total(w.compute) - total(r.compute)) for w, r in pairs)
    return tuple((device, known.get(device, 0) + n_bytes) for device, n_bytes in more if n_bytes > 0)


def _verified(searched: Search, found: Candidate, extra: Extra) -> Candidate | None:
    """The settings that this very question was verified with, if they still run as well as the choice does."""
    known = searched.problem.verified
    kept = known.kept if known is not None else ()
    try:
        settings = with_kept(searched.problem, found.settings, kept)
        if settings == found.settings:
            return None
        whole = evaluator_of(searched.problem, Tool.SERVER, extra)
        candidate = whole.candidate(searched.evaluate(settings).settings, searched.draft.reserve)
    except OptionError:
        return None  # kept by another version of moeplan, or damaged
    return candidate if candidate.runs and candidate.verdict is found.verdict else None


def _explained(searched: Search, rules: tuple[Rule, ...], chosen: Candidate, *, adopted: bool) -> tuple[Decision, ...]:
    """Every rule's second half, checked against what was really chosen; a pin and a trial speak for themselves."""
    problem, pins = searched.problem, dict(searched.problem.workload.pins)
    known = problem.verified
    kept = dict(known.kept) if known and adopted else {}
    decisions: list[Decision] = []
    for rule in rules:
        for decision in rule.explain(problem, searched.draft, chosen, searched.evaluate):
            _check(rule, decision, chosen)
            if decision.setting in pins:
                decision = replace(decision, headline=f"pinned by you; the rule says: {decision.headline}")
            elif known and decision.setting in kept:
                how = "kept" if known.slower else "verified"
                decision = replace(
                    decision,
                    headline=f"so {how} on {known.when}; the rule says: {decision.headline}",
                    confidence=Confidence.MEASURED,
                )
            decisions.append(decision)
    return tuple(decisions)


def _check(rule: Rule, decision: Decision, chosen: Candidate) -> None:
    """A decision must state the value that was chosen, for a setting its rule owns."""
    if decision.setting not in rule.doc.settings or decision.rule != rule.doc.id:
        raise PolicyError(rule.doc.id, expected=f"a decision on {rule.doc.settings}", found=decision.setting)
    value = getattr(chosen.settings, decision.setting, decision.value)
    if isinstance(value, (str, int)) and not isinstance(value, bool) and value != decision.value:
        raise PolicyError(rule.doc.id, expected=f"{decision.setting} = {value}", found=str(decision.value))


def cautions(problem: Problem, chosen: Candidate) -> tuple[Caution, ...]:
    """What the user should know about the result as a whole."""
    found = [Caution("model-note", note) for note in problem.model.notes]
    assumed = assumed_rates(rates_of(problem.machine), chosen.settings, pages=chosen.verdict is Verdict.PAGES)
    if assumed:
        said = f"speed rests on assumed rates ({', '.join(assumed)}): read it as an order of magnitude."
        if problem.machine.engine is None:
            said += " No llama.cpp is known here, and without one no layer is timed: --llama FOLDER names it."
        found.append(Caution("rates-assumed", said))
    busy = ", ".join(report.name for report in problem.machine.probes if BUSY in report.reason)
    if busy:
        found.append(
            Caution("measured-busy", f"{busy} measured beside other work, so too slow: --refresh when it is quiet.")
        )
    found += [_unmeasured(report) for report in problem.machine.probes if _is_lost(report)]
    if chosen.verdict is Verdict.PAGES:
        found.append(
            Caution("pages", "the weights off the GPU are more than RAM holds: part of them is read from disk.")
        )
    engine, (oldest, newest) = problem.machine.engine, MIRRORED_BUILDS
    if engine is not None and engine.build is not None and engine.build > 1 and not oldest <= engine.build <= newest:
        found.append(
            Caution(
                "build-not-mirrored",
                f"memory is counted as b{oldest} to b{newest} do; b{engine.build} may need more: --auto asks it.",
            )
        )
    if not problem.model.attention_known:
        found.append(Caution("attention-assumed", f"cache rules of {problem.model.arch} are not known: KV is assumed."))
    return tuple(found)


def _is_lost(report: ProbeReport) -> bool:
    return report.name == LAYER and report.status == "failed"


def _unmeasured(report: ProbeReport) -> Caution:
    """That speed is estimated though layers were to be timed, why, and how to time them."""
    return Caution(
        "layer-unmeasured",
        f"{report.name} failed, so speed is estimated from rates of the machine ({report.reason}). "
        "To repeat it: moeplan probe MODEL --refresh.",
    )
