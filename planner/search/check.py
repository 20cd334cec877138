"""A user's own settings, judged by the same rules: memory, speed, verdict, and what would fit instead."""

from __future__ import annotations

from dataclasses import replace

from planner.cost.evaluate import Evaluator, budgeted
from planner.cost.model import CostModel
from planner.plans.plan import Plan, Refusal
from planner.plans.rule import Problem, Rule
from planner.plans.settings import Settings, Tool
from planner.search.decide import cautions
from planner.search.ladder import search


def judge(problem: Problem, rules: tuple[Rule, ...], settings: Settings, tool: Tool) -> Plan:
    """Price ``settings`` for ``tool`` under the headroom the rules demand; no decision is made for the user.

    Raises:
        OptionError: settings that llama.cpp itself would refuse.
    """
    problem = replace(problem, machine=budgeted(problem.machine, problem.workload))
    server = Evaluator(CostModel(problem.model, problem.machine, Tool.SERVER), problem.workload)
    searched = search(problem, rules, server)
    runs = Evaluator(CostModel(problem.model, problem.machine, tool), problem.workload)
    chosen = runs.candidate(settings, searched.draft.reserve)
    refusal = None
    if chosen.shortfalls:
        reason = "these flags leave less free than the headroom, or need more than there is"
        refusal = Refusal(chosen.shortfalls, searched.best(), reason)
    return Plan(
        machine=problem.machine,
        model=problem.model,
        workload=problem.workload,
        chosen=chosen,
        cautions=cautions(problem, chosen),
        refusal=refusal,
        lint=(),
    )
