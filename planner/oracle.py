"""Has the engine confirm what a plan needs: it tells a plan's memory, it never decides it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from planner.errors import EngineError
from planner.facts.workload import Target
from planner.plans.oracle import Ask, Confirmation, Oracle

if TYPE_CHECKING:
    from planner.cost.confirm import Extra
    from planner.plans.plan import Plan
    from planner.plans.settings import Settings
    from probes.host import Host
    from probes.oracle import Program, Rows
    from probes.probe import Outcome

MAX_AGAIN: Final = 2
"""Plans after the first: a call takes up to a second, and what is still missing then is in the warning."""


def confirmed(decide: Callable[[Extra], Plan], ask: Ask) -> Plan:
    """A plan with the engine's word on it; where it needs more than predicted, decided again with that set aside.

    The new plan is asked about, too: another placement may lack something else. A refused plan starts nothing, so
    there is nothing to confirm; a user's own flags are theirs to start.

    Args:
        decide: bytes per device that the engine needs beyond the prediction → a plan.
    """
    plan = decide(())
    if ask is Ask.NEVER or _starts_nothing(plan):
        return plan
    from planner.cost.confirm import cautions, comparable, larger, missing
    from probes.host import LocalHost

    host = LocalHost()
    extra: Extra = ()
    first = oracle = _word(host, plan, ask)
    for _ in range(MAX_AGAIN):
        more = larger(extra, missing(oracle.differences))
        if more == extra:
            break
        before, extra, plan = comparable(plan.chosen.settings), more, decide(more)
        if not _starts_nothing(plan) and comparable(plan.chosen.settings) != before:
            again = _word(host, plan, ask)
            oracle = again if again.differences else oracle
    said = oracle if oracle.outcome is Confirmation.DISAGREES else first
    return replace(
        plan,
        oracle=replace(oracle, reserved=extra),
        cautions=plan.cautions + cautions(replace(said, reserved=extra)),
    )


def _starts_nothing(plan: Plan) -> bool:
    return plan.refusal is not None and plan.lint is None


def _word(host: Host, plan: Plan, ask: Ask) -> Oracle:
    """The engine's word on a plan's settings: an earlier answer, or a new one where it may be asked."""
    from planner.cost.confirm import comparable, compare, repeatable, verdict
    from probes import oracle_store
    from probes.probe import Found

    build = plan.machine.engine.build if plan.machine.engine else None
    program = _program(host, plan)
    if not isinstance(program, Found):
        return Oracle(Confirmation.ABSENT, build, reason=program.reason)
    model, settings = plan.model, comparable(plan.chosen.settings)
    repeats = repeatable(settings)
    key = oracle_store.key(host, program.value.path, model.fingerprint, repr(settings)) if repeats else None
    rows = oracle_store.load(host, key)
    stored = rows is not None
    if rows is None:
        if ask is Ask.STORED:
            reason = "--fit asks nothing; moeplan --auto does"
            return Oracle(Confirmation.ABSENT, build, reason=reason)
        answer = _answer(host, program.value, plan, settings)
        if not isinstance(answer, Found):
            return Oracle(Confirmation.FAILED, build, reason=answer.reason)
        rows = answer.value
        oracle_store.store(host, key, rows)
    return verdict(compare(model, plan.machine, settings, rows), build, stored=stored)


def _program(host: Host, plan: Plan) -> Outcome[Program]:
    """What could be asked about this plan, or why nothing can."""
    from probes import oracle, oracle_embedded
    from probes.probe import Absent

    engine, target = plan.machine.engine, plan.workload.target_build
    if engine is None:
        return Absent("no llama.cpp was found")
    if plan.workload.target is not Target.LLAMA_CPP:
        return Absent(f"the flags are for {plan.workload.target.value}")
    if target not in (None, engine.build):
        return Absent(f"the flags are for b{target}, not for the engine that was found")
    if "://" in plan.model.path:
        return Absent("the model is not on this computer")
    if engine.kind != "llama-cpp-python":
        return oracle.find(host, engine)
    if plan.chosen.settings.devices:
        return Absent("the embedded engine is asked about plans on the CPU alone")
    return oracle_embedded.find(host)


def _answer(host: Host, program: Program, plan: Plan, settings: Settings) -> Outcome[Rows]:
    from emit.flags import spell
    from planner.plans.settings import Tool
    from probes import oracle, oracle_embedded
    from probes.probe import Failed

    if program.embedded:
        return oracle_embedded.ask(host, program.path, plan.model.path, asdict(settings))
    try:
        flags = spell(settings, plan.model, plan.machine, tool=Tool.FIT_PARAMS)
    except EngineError as error:
        return Failed(str(error))
    return oracle.ask(host, program.path, flags)
