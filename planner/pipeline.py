"""The composition root: the one module that knows probes, the GGUF reader, the rules, the search and the emitters.

Nothing here prints. Every part is imported by the function that needs it, so that a command loads only its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.errors import MachineFileError, ModelFileError, OptionError, PlanFileError
from planner.plans.oracle import Ask
from planner.request import Measure as Measure
from planner.request import Request as Request
from planner.routing.known import routed as routed

if TYPE_CHECKING:
    from emit.caution_table import Meaning
    from emit.flag_table import Flag
    from emit.flags import ParsedFlags
    from emit.json_read import SavedPlan
    from planner.demo import DemoModel
    from planner.facts.machine import Machine
    from planner.facts.model import Model
    from planner.facts.routing import PoolSet, Routing
    from planner.plans.decision import RuleDoc
    from planner.plans.plan import Plan
    from planner.plans.rule import Problem
    from planner.plans.settings import Tool
    from planner.plans.verified import Foreseen
    from planner.routing.session import CaptureRequest
    from planner.verification.flow import Running as Running
    from planner.verification.listener import Listener
    from planner.verification.options import Options as Options


def inspect(path: str) -> Model:
    """Read a GGUF. Raises ModelFileError."""
    from planner.gguf.analyze import analyze

    return analyze(path)


def pool_set(model: Model, n_bytes: int) -> PoolSet:
    """The fixed set of experts for a pool of so many bytes; of a model that was ``routed``.

    Raises:
        RoutingFileError: layers without a recording, or a pool below one token's experts.
    """
    from planner.routing.static_set import fixed_set

    assert model.routing is not None
    return fixed_set(model, model.routing, n_bytes)


def capture_routing(wanted: CaptureRequest) -> tuple[Model, Routing]:
    """Record which experts a model selects. Raises ModelFileError, CaptureError, EngineError."""
    from planner.routing.session import record

    model = inspect(wanted.model)
    return model, record(model, wanted)


def make_plan(request: Request) -> Plan:
    """Decide everything for a request, or refuse.

    Raises:
        ModelFileError, MachineFileError, EngineError: what was named cannot be used.
        OptionError: a pin or limit that is none.
    """
    from planner import search
    from planner.oracle import confirmed
    from policies import RULES

    model = routed(inspect(request.model), request.routing)
    problem = _problem(request, model)
    with _sound(model):
        return confirmed(lambda extra: search.plan(problem, RULES, extra), _asking(request))


def check(request: Request, flags: tuple[str, ...], tool: Tool) -> Plan:
    """What a user's own llama.cpp flags come to: memory, speed, verdict and lint.

    Raises as ``make_plan`` does, and OptionError for flags that cannot be read.
    """
    return _judged(request, *_parsed(request, flags, tool))


def _parsed(request: Request, flags: tuple[str, ...], tool: Tool) -> tuple[Problem, ParsedFlags]:
    from emit.flags import parse_argv

    model = routed(inspect(request.model), request.routing)
    problem = _problem(request, model)
    return problem, parse_argv(flags, model, problem.machine, tool, build=problem.workload.target_build)


def _judged(request: Request, problem: Problem, parsed: ParsedFlags) -> Plan:
    from emit.lint import lint, stops
    from planner import search
    from planner.oracle import confirmed
    from policies import RULES

    tool = parsed.tool
    with _sound(problem.model):
        plan = confirmed(lambda extra: search.judge(problem, RULES, parsed.settings, tool, extra), _asking(request))
    findings = lint(parsed, plan)
    reasons = stops(findings, parsed)
    return replace(search.stopped(plan, RULES, reasons) if reasons else plan, lint=findings)


@contextmanager
def _sound(model: Model) -> Iterator[None]:
    """A header can be well formed and still lack what its architecture computes with: that is the file's fault.

    Raises:
        ModelFileError: a tensor or dimension that the memory model needs is not there.
    """
    try:
        yield
    except (KeyError, IndexError, ZeroDivisionError) as error:
        expected = f"blocks as {model.arch} has them"
        raise ModelFileError(model.path, expected=expected, found=f"a block without {error}") from error


def probe(path: str | None, llama: str | None, rpc: tuple[str, ...], measure: Measure) -> Machine:
    """Look at this machine and measure it. With a model, the disk under it, too.

    Raises:
        ModelFileError, EngineError: what was named cannot be used.
    """
    return _here(inspect(path) if path is not None else None, llama, rpc, measure)


def _here(model: Model | None, llama: str | None, rpc: tuple[str, ...], measure: Measure | None) -> Machine:
    """This machine: static facts of now, and measured figures, kept ones or new ones."""
    from planner.layer_probe import layer_probe
    from probes import timed
    from probes.collect import collect
    from probes.host import LocalHost

    host, local = LocalHost(), model if model is not None and not model.path.startswith("https://") else None
    machine = collect(host, model_path=local.path if local else None, llama=llama, rpc=rpc)
    subject = timed.Subject(machine, local)
    probes: tuple[timed.Timed, ...] = (*timed.TIMED, layer_probe(llama, rpc))
    if measure is None:
        return timed.stored(host, subject, probes)
    probes += (timed.MEMORY,) if measure.take_memory else ()
    return timed.measure(
        host, subject, measure.listener, budget_s=measure.budget_s, refresh=measure.refresh, probes=probes
    )


def machine_json(machine: Machine) -> str:
    """A machine as ``moeplan.machine/1``."""
    from probes.machine_file import dump

    return dump(machine)


def manuals(topic: str) -> tuple[tuple[RuleDoc, ...], Flag | None, Meaning | None]:
    """The manuals of a rule, of a setting, or of a flag in any spelling, every one for the empty topic; the flag
    itself where no rule decides it; and the caution of that code.

    Raises:
        OptionError: nothing of that name.
    """
    from emit.caution_table import meaning_of
    from emit.flag_page import flag_named
    from emit.topic import no_topic
    from planner.limits import setting_named
    from policies import RULES

    docs = tuple(rule.doc for rule in RULES)
    setting = setting_named(topic)
    found = tuple(doc for doc in docs if not topic or doc.id == topic or setting in doc.settings)
    flag = None if found else flag_named(topic) or flag_named(setting)
    caution = meaning_of(topic)
    if not found and flag is None and caution is None:
        raise no_topic(topic, (doc.id for doc in docs))
    return found, flag, caution


def saved_plan(path: str) -> SavedPlan:
    """A plan written with ``--json``. Raises PlanFileError."""
    from emit.json_read import plan_from
    from planner.files import text_of

    return plan_from(text_of(path, PlanFileError), path)


def write_demo(folder: str) -> DemoModel:
    """Write the demo model. Raises OutputError."""
    from pathlib import Path

    from planner.demo import write

    return write(Path(folder))


def plan_to_start(request: Request, note: Callable[[str], None]) -> Plan:
    """A plan whose engine can be started here: of a model, or of a file that a plan or verification was written to.

    ``note`` is told, before anything is measured, of an engine that will not go on serving.

    Raises as ``make_plan`` does, and
        PlanFileError: the file holds no plan, one of another model, or a command that is not a plan's.
        OptionError: nothing can be started for a recorded machine or another build.
        EngineError: there is no llama.cpp.
    """
    from planner.verification.startable import check_engine, check_plan, check_request

    check_request(request.machine_file, request.workload)
    check_engine(request.llama, note)
    plan = _saved_plan(request) if request.model.endswith(".json") else make_plan(request)
    check_plan(plan)
    return plan


def _saved_plan(request: Request) -> Plan:
    from planner.plans.settings import Tool
    from planner.verification.startable import check_command

    saved = saved_plan(request.model)
    if inspect(saved.model).fingerprint != saved.fingerprint:
        raise PlanFileError(request.model, expected="a plan of this model", found=f"{saved.model} has changed")
    pins = request.workload.pins
    if pins or saved.refused:
        found = "a refusal" if saved.refused else "--pin beside a plan that is made"
        raise PlanFileError(request.model, expected="a plan to start as it is", found=found)
    asked = replace(request, model=saved.model, workload=replace(saved.workload, rpc=request.workload.rpc))
    problem, parsed = _parsed(asked, saved.argv[1:], Tool.SERVER)
    check_command(request.model, parsed, request.workload.rpc)
    plan = _judged(asked, problem, parsed)
    return replace(plan, decisions=saved.decisions, lint=None)


def verify_options(own: tuple[str, ...]) -> Options:
    """Usual options with the user's own arguments for llama-server. Raises OptionError."""
    from planner.verification.options import Options
    from planner.verification.startable import KEY_VARIABLE, own_arguments
    from probes.host import LocalHost

    return Options(own=own_arguments(own, LocalHost().env(KEY_VARIABLE)))


def would_try(plan: Plan, options: Options) -> Foreseen:
    """What verifying a plan would try, and what it would take."""
    from planner import search
    from planner.verification.flow import foreseen
    from policies import RULES
    from probes.host import LocalHost

    return foreseen(LocalHost(), plan, search.pricing(plan, RULES), options)


@contextmanager
def verifying(plan: Plan, options: Options, listener: Listener) -> Iterator[Running]:
    """Start the engine with a plan that fits, verify it, and keep it running in the context if ``options.serve``."""
    from planner import search
    from planner.verification.flow import verified
    from policies import RULES
    from probes.host import LocalHost

    with verified(LocalHost(), plan, search.pricing(plan, RULES), options, listener) as running:
        yield running


def _problem(request: Request, model: Model) -> Problem:
    """What is given, with what verified runs have taught; a recorded machine has no runs of its own here."""
    from planner.limits import named
    from planner.plans.rule import Problem

    machine = _machine(request, model)
    work = named(request.workload, machine)
    if request.machine_file is not None:
        return Problem(machine, model, work)
    from planner.verification.learning import problem
    from probes.host import LocalHost

    return problem(LocalHost(), machine, model, work)


def _machine(request: Request, model: Model) -> Machine:
    if request.machine_file is None:
        return _here(model, request.llama, request.workload.rpc, request.measure)
    for option, value in (("--llama", request.llama), ("--rpc", request.workload.rpc)):
        if value:
            raise OptionError(option, found="nothing is measured with --machine", advice="leave one of them out")
    from planner.files import text_of
    from probes.machine_file import load

    machine = load(text_of(request.machine_file, MachineFileError), request.machine_file)
    return replace(machine, layers=tuple(rate for rate in machine.layers if rate.model == model.fingerprint))


def _asking(request: Request) -> Ask:
    """On a recorded machine no engine is started, and no answer of this one counts."""
    return Ask.NEVER if request.machine_file is not None else request.ask
