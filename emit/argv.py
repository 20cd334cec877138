"""Plan → the command line that starts it."""

from __future__ import annotations

from dataclasses import replace

from emit import flag_spell, target, wording
from emit.dialect import caution, dialect_of
from emit.flag_spell import Spelled
from planner.facts.workload import Target
from planner.plans.plan import Candidate, Caution, Plan
from planner.plans.settings import Tool


def program(plan: Plan) -> str:
    """The engine's own llama-server if its path is known, else the bare name; of another engine its usual name."""
    if plan.workload.target is not Target.LLAMA_CPP:
        return target.PROGRAMS[plan.workload.target]
    engine = plan.machine.engine
    return engine.server if engine and engine.server else Tool.SERVER.value


def flags(plan: Plan, candidate: Candidate | None = None, *, build: int | None = None) -> tuple[Spelled, ...]:
    """Flags of a plan (or of another candidate of it) in the order they are printed.

    Args:
        build: spell for this llama.cpp, not for the plan's.

    Raises:
        EngineError: this engine cannot do what the settings ask. Of a user's own flags such are left out.
    """
    chosen = candidate or plan.chosen
    if plan.workload.target is not Target.LLAMA_CPP:
        return target.spelled(plan, chosen)
    build, own = build or plan.workload.target_build, plan.lint is not None
    found = flag_spell.spelled(chosen.settings, plan.model, plan.machine, build=build, lenient=own)
    return found if plan.port is None else tuple(_at(item, plan.port) for item in found)


def _at(item: Spelled, port: int) -> Spelled:
    own = replace(item, tokens=(item.flag, str(port)), reason="yours")
    return own if item.setting == "port" else item


def argv(plan: Plan, candidate: Candidate | None = None) -> tuple[str, ...]:
    """The whole command; raises as ``flags`` does."""
    return (program(plan), *(token for item in flags(plan, candidate) for token in item.tokens))


def cautions(plan: Plan) -> tuple[Caution, ...]:
    """What the user should know: the plan's own cautions, then what is not known of the engine."""
    other = target.caution(plan.workload.target)
    engine = other or caution(dialect_of(plan.machine, plan.workload.target_build))
    known = {item.code for item in plan.cautions}
    return plan.cautions + tuple(item for item in (engine, _left_out(plan)) if item and item.code not in known)


def _left_out(plan: Plan) -> Caution | None:
    """Flags that the build lacks and that are left out for that; None where it has all, and of a user's own flags."""
    if plan.workload.target is not Target.LLAMA_CPP or plan.lint is not None:
        return None
    said = flag_spell.absent(plan.chosen.settings, dialect_of(plan.machine, plan.workload.target_build))
    return Caution("flags-left-out", " ".join(said)) if said else None


def remarks(plan: Plan) -> tuple[str, ...]:
    """What stands as comments above a command: the headline and the cautions, a line each."""
    return (wording.headline(plan), *(f"{item.code}: {wording.clean(item.message)}" for item in cautions(plan)))
