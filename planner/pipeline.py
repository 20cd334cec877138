"""The composition root: the one module that knows probes, the GGUF reader, the rules, the search and the emitters.

Nothing here prints. Every part is imported by the function that needs it, so that a command loads only its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from planner.errors import MachineFileError, MoeplanError, OptionError, OutputError, PlanFileError
from planner.facts.workload import Workload

if TYPE_CHECKING:
    from planner.demo import DemoModel
    from planner.facts.machine import Machine
    from planner.facts.model import Model
    from planner.plans.decision import Decision, RuleDoc
    from planner.plans.plan import Plan
    from planner.plans.settings import Tool
    from probes.timed import Listener

MAX_JSON_BYTES: Final = 4 << 20


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
    """

    model: str
    workload: Workload
    machine_file: str | None = None
    llama: str | None = None
    measure: Measure | None = None


def inspect(path: str) -> Model:
    """Read a GGUF. Raises ModelFileError."""
    from planner.gguf.analyze import analyze

    return analyze(path)


def make_plan(request: Request) -> Plan:
    """Decide everything for a request, or refuse.

    Raises:
        ModelFileError, MachineFileError, EngineError: what was named cannot be used.
        OptionError: a pin or limit that is none.
    """
    from planner import search
    from planner.plans.rule import Problem
    from policies import RULES

    model = inspect(request.model)
    return search.plan(Problem(_machine(request, model), model, _workload(request)), RULES)


def check(request: Request, flags: tuple[str, ...], tool: Tool) -> Plan:
    """What a user's own llama.cpp flags come to: memory, speed, verdict and lint.

    Raises as ``make_plan`` does, and OptionError for flags that cannot be read.
    """
    from emit.flags import parse_argv
    from emit.lint import lint
    from planner import search
    from planner.plans.rule import Problem
    from policies import RULES

    model, workload = inspect(request.model), _workload(request)
    machine = _machine(request, model)
    parsed = parse_argv(flags, model, machine, tool, build=workload.target_build)
    plan = search.judge(Problem(machine, model, workload), RULES, parsed.settings, tool)
    return replace(plan, lint=lint(parsed, plan))


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

    return decisions_from(_read_text(path, PlanFileError), path)


def write_demo(folder: str) -> DemoModel:
    """Write the demo model. Raises OutputError."""
    from pathlib import Path

    from planner.demo import write

    return write(Path(folder))


def write_file(path: str, text: str) -> None:
    """Write a rendering to a file that a user named. Raises OutputError."""
    try:
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
    except OSError as error:
        raise OutputError(path, found=error.strerror or str(error)) from error


def _machine(request: Request, model: Model) -> Machine:
    if request.machine_file is None:
        return _here(model, request.llama, request.workload.rpc, request.measure)
    if request.llama is not None:
        raise OptionError("--llama", found="nothing is measured with --machine", advice="leave one of them out")
    from probes.machine_file import load

    machine = load(_read_text(request.machine_file, MachineFileError), request.machine_file)
    return replace(machine, layers=tuple(rate for rate in machine.layers if rate.model == model.fingerprint))


def _workload(request: Request) -> Workload:
    """The workload with every pinned flag under the name of its setting."""
    pins = tuple((_setting(name) or name, value) for name, value in request.workload.pins)
    return replace(request.workload, pins=pins)


def _setting(name: str) -> str | None:
    """``n_cpu_moe`` for ``n-cpu-moe``, ``--n-cpu-moe``, ``-ncmoe`` or itself."""
    from emit.flags import setting_of

    bare = name.lstrip("-")
    spellings = (name, f"--{bare}", f"-{bare}")
    return next((found for spelling in spellings if (found := setting_of(spelling))), bare.replace("-", "_"))


def _read_text(path: str, kind: type[MoeplanError]) -> str:
    """The text of a small file that a user named. Raises ``kind``."""
    from pathlib import Path

    file = Path(path)
    try:
        if not file.is_file():
            found = "a folder or device" if file.exists() else "nothing there"
            raise kind(path, expected="a file", found=found)
        if file.stat().st_size > MAX_JSON_BYTES:
            raise kind(path, expected=f"at most {MAX_JSON_BYTES} bytes", found=str(file.stat().st_size))
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise kind(path, found=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise kind(path, expected="UTF-8 text", found=f"another byte at {error.start}") from error
