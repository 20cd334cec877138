"""A problem and the rules → a plan or a refusal."""

from __future__ import annotations

from dataclasses import replace

from planner.cost.confirm import CorrectedCost, Extra, larger
from planner.cost.evaluate import Evaluator, budgeted
from planner.cost.rates import assumed_rates, rates_of
from planner.errors import OptionError, PolicyError
from planner.plans.decision import Confidence, Decision
from planner.plans.plan import Candidate, Caution, Plan, Verdict
from planner.plans.rule import Problem, Rule
from planner.plans.settings import Tool
from planner.search.engine import Search, search
from planner.search.exchange import exchange
from planner.search.pins import with_values
from planner.search.refusal import closest, refuse


def plan(problem: Problem, rules: tuple[Rule, ...], extra: Extra = ()) -> Plan:
    """Decide everything, or refuse.

    Args:
        extra: bytes per device that the engine is known to need beyond the prediction.

    Raises:
        PolicyError: a rule's explanation contradicts the settings that were chosen.
        OptionError: a pin that is not a setting.
    """
    problem = replace(problem, machine=budgeted(problem.machine, problem.workload))
    evaluator = evaluator_of(problem, Tool.SERVER, extra)
    searched = search(problem, rules, evaluator)
    found = searched.best()
    kept = _verified(searched, found) if found else None
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
        refusal=None if found else refuse(problem, rules, evaluator, chosen),
        verified=problem.verified,
    )


def evaluator_of(problem: Problem, tool: Tool, extra: Extra) -> Evaluator:
    """Prices for a problem: with what the engine is known to need, and with what verified runs have taught."""
    verified = problem.verified
    more = larger(extra, verified.extra) if verified else extra
    cost = CorrectedCost(problem.model, problem.machine, tool, more)
    return Evaluator(cost, problem.workload, verified=verified)


def _verified(searched: Search, found: Candidate) -> Candidate | None:
    """The settings that this very question was verified with, if they still run as well as the choice does."""
    known = searched.problem.verified
    kept = known.kept if known is not None else ()
    kept = tuple((name, text) for name, text in kept if searched.problem.pin(name) is None)
    if not kept:
        return None
    try:
        candidate = searched.evaluate(with_values(found.settings, kept))
    except OptionError:
        return None  # kept by another version of moeplan
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
                decision = replace(
                    decision,
                    headline=f"so verified on {known.when}; the rule says: {decision.headline}",
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
        found.append(
            Caution("rates-assumed", f"speed rests on assumed rates ({', '.join(assumed)}): read it as an order.")
        )
    if chosen.verdict is Verdict.PAGES:
        found.append(
            Caution("pages", "the weights that stay in RAM are more than it holds: part of them is read from disk.")
        )
    if not problem.model.attention_known:
        found.append(Caution("attention-assumed", f"cache rules of {problem.model.arch} are not known: KV is assumed."))
    return tuple(found)
