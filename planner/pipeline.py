"""The composition root: the one module that knows probes, the GGUF reader, the rules, the search and the emitters.

Nothing here prints. Every part is imported by the function that needs it, so that a command loads only its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from planner.errors import MachineFileError, ModelFileError, OptionError, PlanFileError
from planner.facts.workload import Workload
from planner.plans.oracle import Ask

if TYPE_CHECKING:
    from planner.demo import DemoModel
    from planner.facts.machine import Machine
    from planner.facts.model import Model
    from planner.facts.routing import PoolSet, Routing
    from planner.plans.decision import Decision, RuleDoc
    from planner.plans.plan import Plan
    from planner.plans.settings import Tool
    from planner.routing.session import CaptureRequest
    from probes.timed import Listener


@dataclass(frozen=True, slots=True)
class Measure:
    """How to measure.

    Args:
        listener: who is told of the progress.
        budget_s: what all timed probes may take together.
        refresh: measure again what was kept.
        take_memory: find out how much RAM can really be taken, too.
    """

    listener: Listener
    budget_s: float = 60.0
    refresh: bool = False
    take_memory: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks for.

    Args:
        model: a GGUF path, any shard, or an ``https://`` URL.
        machine_file: a recorded machine; nothing is measured then.
        llama: a llama.cpp folder or program; None looks for one.
        measure: how to measure what was not measured before; None takes kept figures only.
        ask: whether the engine confirms the memory.
        routing: a file that says which experts the model uses.
    """

    model: str
    workload: Workload
    machine_file: str | None = None
    llama: str | None = None
    measure: Measure | None = None
    ask: Ask = Ask.CALL
    routing: str | None = None


def inspect(path: str) -> Model:
    """Read a GGUF. Raises ModelFileError."""
    from planner.gguf.analyze import analyze

    return analyze(path)


def routed(model: Model, path: str | None, *, every_policy: bool = False) -> Model:
    """A model with what a routing file says about it; as it is without one.

    Args:
        every_policy: with the curves of pools that llama.cpp cannot run, too: seconds more.

    Raises:
        RoutingFileError, ModelFileError: the file cannot be read, or belongs to another model.
    """
    if path is None:
        return model
    from planner.routing.analysis import analyse
    from planner.routing.load import load
    from planner.routing.shape import notes, shape_of

    shape, recording = shape_of(model), load(path, model)
    stats = analyse(recording, shape.bytes_of(recording.layers), every_policy=every_policy)
    return replace(model, routing=stats, notes=model.notes + notes(recording, shape))


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
    from planner.plans.rule import Problem
    from policies import RULES

    model = routed(inspect(request.model), request.routing)
    machine = _machine(request, model)
    problem = Problem(machine, model, _workload(request, machine))
    with _sound(model):
        return confirmed(lambda extra: search.plan(problem, RULES, extra), _asking(request))


def check(request: Request, flags: tuple[str, ...], tool: Tool) -> Plan:
    """What a user's own llama.cpp flags come to: memory, speed, verdict and lint.

    Raises as ``make_plan`` does, and OptionError for flags that cannot be read.
    """
    from emit.flags import parse_argv
    from emit.lint import lint, stops
    from planner import search
    from planner.oracle import confirmed
    from planner.plans.rule import Problem
    from policies import RULES

    model = routed(inspect(request.model), request.routing)
    machine = _machine(request, model)
    workload = _workload(request, machine)
    parsed = parse_argv(flags, model, machine, tool, build=workload.target_build)
    problem = Problem(machine, model, workload)
    with _sound(model):
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


def manuals(topic: str) -> tuple[RuleDoc, ...]:
    """The manuals of a rule, of a setting, or of a flag in any spelling; every one for the empty topic.

    Raises:
        OptionError: nothing of that name.
    """
    from policies import RULES

    docs = tuple(rule.doc for rule in RULES)
    setting = _setting(topic)
    found = tuple(doc for doc in docs if not topic or doc.id == topic or setting in doc.settings)
    if not found:
        known = ", ".join(doc.id for doc in docs)
        raise OptionError(topic, expected=f"a rule ({known}) or a flag that one of them decides", found="neither")
    return found


def decisions_in(path: str) -> tuple[Decision, ...]:
    """The decisions of a plan written with ``--json``. Raises PlanFileError."""
    from emit.json_read import decisions_from
    from planner.files import text_of

    return decisions_from(text_of(path, PlanFileError), path)


def write_demo(folder: str) -> DemoModel:
    """Write the demo model. Raises OutputError."""
    from pathlib import Path

    from planner.demo import write

    return write(Path(folder))


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


def _workload(request: Request, machine: Machine) -> Workload:
    """The workload with every pinned flag under the name of its setting.

    Raises:
        OptionError: a budget for a device that is not there.
    """
    known = {gpu.id for gpu in machine.gpus}
    for device, _ in request.workload.vram_bytes:
        if device and device not in known:
            there = " ".join(sorted(known)) or "no device"
            raise OptionError(f"--vram {device}", expected=there, found="a device that is not there")
    for gpu in machine.gpus:
        asked = dict(request.workload.vram_bytes).get(gpu.id, dict(request.workload.vram_bytes).get("", 0))
        if asked > gpu.total_bytes:
            raise OptionError(
                "--vram", expected=f"at most {gpu.total_bytes} bytes for {gpu.id}", found=f"{asked} bytes"
            )
    return replace(request.workload, pins=tuple(_pin(name, value) for name, value in request.workload.pins))


_OPPOSITE: Final = {"1": "0", "on": "off", "true": "false", "yes": "no"}


def _pin(name: str, value: str) -> tuple[str, str]:
    """``(n_cpu_moe, 3)`` for ``n-cpu-moe``, ``--n-cpu-moe``, ``-ncmoe`` or itself; ``(repack, off)`` for
    ``(--no-repack, on)``."""
    from emit.flags import negates, setting_of

    bare = name.lstrip("-")
    for spelling in (name, f"--{bare}", f"-{bare}"):
        setting = setting_of(spelling)
        if setting is not None:
            words = _OPPOSITE | {no: yes for yes, no in _OPPOSITE.items()}
            return setting, words.get(value.lower(), value) if negates(spelling) else value
    return bare.replace("-", "_"), value


def _setting(name: str) -> str:
    """The setting behind a flag in any spelling."""
    return _pin(name, "")[0]
