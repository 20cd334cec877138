"""Prices around a finished plan: what its neighbours would need and how fast they would be."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.cost.evaluate import Reserve
from planner.plans.plan import Candidate, Plan
from planner.plans.rule import Problem, Rule
from planner.plans.settings import Settings, Tool
from planner.search.decide import evaluator_of
from planner.search.engine import Search, search


@dataclass(frozen=True, slots=True)
class Pricing:
    """Memory and speed of any settings, under the headroom that the rules demand for the plan's problem."""

    searched: Search

    @property
    def problem(self) -> Problem:
        return self.searched.problem

    @property
    def reserve(self) -> Reserve:
        """Bytes to keep free per device."""
        return self.searched.draft.reserve

    def candidate(self, settings: Settings) -> Candidate:
        """Settings under the plan's workload; several devices get their balanced split unless it is pinned."""
        return self.searched.evaluate(settings)

    def at(self, settings: Settings, prompt_tokens: int, answer_tokens: int) -> Candidate:
        """The same settings for another prompt and answer."""
        work = replace(self.problem.workload, prompt_tokens=max(prompt_tokens, 1), answer_tokens=max(answer_tokens, 1))
        return self.searched.evaluator.under(work).candidate(settings, self.reserve)


def pricing(plan: Plan, rules: tuple[Rule, ...]) -> Pricing:
    """Prices for a plan's own problem, with what the engine said it needs beyond the prediction.

    The embedded engine sizes its outputs for a whole batch, as llama-completion does.
    """
    engine = plan.machine.engine
    tool = Tool.COMPLETION if engine is not None and engine.kind == "llama-cpp-python" else Tool.SERVER
    problem = Problem(plan.machine, plan.model, plan.workload, plan.verified)
    evaluator = evaluator_of(problem, tool, plan.oracle.reserved if plan.oracle else ())
    return Pricing(search(problem, rules, evaluator))
