"""The probes that take time: what each measures and for what, what its figures hold for, and where they go.

``stored`` puts kept figures into a machine and measures nothing. ``measure`` measures what is missing within a
budget, keeps it, and can be interrupted: what is done stays done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from planner.facts.machine import Machine, Ram
from planner.facts.model import Model
from planner.facts.outcome import BUSY, ProbeReport
from probes import bench_disk, bench_link, bench_memory, bench_ram, figures, store
from probes.host import Host
from probes.probe import Absent, Failed, Found, Outcome
from probes.text import clean

FAILED: Final = "failed"
"""Key of an entry that says only that a probe failed."""

DEFAULT_BUDGET_S: Final = 60.0
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: a machine as the static probes saw it, and a model whose files are on it (or None)."""

    machine: Machine
    model: Model | None


@dataclass(frozen=True, slots=True)
class Timed:
    """One probe.

    Args:
        what, purpose: for the progress line.
        most_s: what it takes at most; ``measure`` gets this or what is left.
        nothing: why there is nothing to measure, or empty; nobody is told of a probe that has nothing to do.
        about: what its figures hold for beside the machine; None if they are of the moment and not kept.
        apply: puts figures into a machine; raises ValueError, KeyError or TypeError for a damaged record.
        keeps_failure: a failure is kept, too, and tried again only on ``refresh``.
    """

    name: str
    what: str
    purpose: str
    most_s: float
    nothing: Callable[[Subject], str]
    about: Callable[[Subject], tuple[str, ...]] | None
    measure: Callable[[Host, Subject, float], Outcome[Figures]]
    apply: Callable[[Machine, Figures], Machine]
    keeps_failure: bool = False


class Listener(Protocol):
    """Who is told of the progress."""

    def begin(self, name: str, what: str, purpose: str) -> None: ...

    def end(self, report: ProbeReport) -> None: ...


def _ram(machine: Machine, data: Figures) -> Machine:
    by_count = {int(item["threads"]): figures.from_json(item) for item in data["threads"]}
    fewest = bench_ram.fewest_threads((count, reading.value) for count, reading in by_count.items())
    best = max(by_count.values(), key=lambda reading: reading.value)
    threads = replace(best, value=float(fewest), spread=None, method="fewest threads within 2 % of the best RAM rate")
    return replace(
        machine,
        ram=replace(machine.ram, read_bps=best),
        cpu=replace(machine.cpu, read_threads=threads),
    )


def _gpus(subject: Subject) -> tuple[str, ...]:
    gpus = subject.machine.gpus
    return tuple(f"{gpu.id}|{gpu.name}|{gpu.total_bytes}|{gpu.driver}" for gpu in gpus)


def _place(subject: Subject) -> tuple[str, ...]:
    disk, model = subject.machine.disk, subject.model
    if disk is None or model is None:
        return ("nowhere",)
    return (disk.filesystem or "", disk.device or "", disk.path, model.fingerprint)


def _no_disk(subject: Subject) -> str:
    if subject.model is None or subject.machine.disk is None:
        return "no local model was named"
    return bench_disk.nothing(subject.machine.disk)


def _disk(host: Host, subject: Subject, seconds: float) -> Outcome[Figures]:
    return Absent(_no_disk(subject)) if subject.model is None else bench_disk.measure(host, subject.model, seconds)


def _with_disk(machine: Machine, data: Figures) -> Machine:
    disk = machine.disk
    return machine if disk is None else replace(machine, disk=bench_disk.apply(disk, data))


TIMED: Final = (
    Timed(
        "ram-rate",
        what="RAM read rate by thread count",
        purpose="how fast experts in RAM decode",
        most_s=10.0,
        nothing=lambda subject: "",
        about=lambda subject: (),
        measure=lambda host, subject, seconds: bench_ram.measure(host, subject.machine, seconds),
        apply=_ram,
    ),
    Timed(
        "link-rate",
        what="copies to each GPU",
        purpose="what streaming experts in prefill costs",
        most_s=30.0,
        nothing=lambda subject: bench_link.nothing(subject.machine),
        about=_gpus,
        measure=lambda host, subject, seconds: bench_link.measure(host, subject.machine, seconds),
        apply=bench_link.apply,
    ),
    Timed(
        "disk-rate",
        what="reads of the model file",
        purpose="loading, and experts that RAM cannot hold",
        most_s=8.0,
        nothing=_no_disk,
        about=_place,
        measure=_disk,
        apply=_with_disk,
    ),
)

MEMORY: Final = Timed(
    "memory-taken",
    what="how much RAM can be taken",
    purpose="what may stay in RAM",
    most_s=30.0,
    nothing=lambda subject: "",
    about=None,
    measure=lambda host, subject, seconds: bench_memory.measure(host, subject.machine, seconds),
    apply=bench_memory.apply,
)


def stored(host: Host, subject: Subject, probes: tuple[Timed, ...] = TIMED) -> Machine:
    """The machine with every figure that was kept for it. Measures nothing."""
    machine = with_idle(host, subject.machine)
    for probe in probes:
        kept = _kept(host, probe, subject, machine)
        if kept is not None:
            machine = kept
    return machine


def measure(
    host: Host,
    subject: Subject,
    listener: Listener,
    *,
    budget_s: float = DEFAULT_BUDGET_S,
    refresh: bool = False,
    probes: tuple[Timed, ...] = TIMED,
) -> Machine:
    """The machine with kept figures, and measured ones where there are none.

    Args:
        budget_s: what all probes may take together; those it does not reach are absent.
        refresh: measure again what was kept.
    """
    machine, end = with_idle(host, subject.machine), host.clock() + budget_s
    interrupted = False
    for probe in probes:
        kept = None if refresh else _kept(host, probe, subject, machine)
        if kept is not None:
            machine = kept
            continue
        seconds = min(probe.most_s, end - host.clock())
        late = "not measured: interrupted" if interrupted else f"not measured: no time left of {budget_s:g} s"
        why = probe.nothing(subject) or (late if interrupted or seconds <= 0 else "")
        if why:
            machine = _reported(machine, ProbeReport(probe.name, "absent", why, 0.0))
            continue
        listener.begin(probe.name, probe.what, probe.purpose)
        start = host.clock()
        outcome: Outcome[Figures]
        try:
            outcome = _run(host, probe, replace(subject, machine=machine), seconds)
        except KeyboardInterrupt:
            interrupted, outcome = True, Absent("not measured: interrupted")
        machine, report = _taken(host, probe, subject, machine, outcome, host.clock() - start)
        listener.end(report)
    return machine


def _run(host: Host, probe: Timed, subject: Subject, seconds: float) -> Outcome[Figures]:
    busy = busy_note(host.read_text("/proc/loadavg"), subject.machine.cpu.logical_cores)
    try:
        outcome = probe.measure(host, subject, seconds)
    except Exception as error:  # a probe meets whatever a machine holds; its failure must stay its own
        return Failed(clean(f"{type(error).__name__}: {error}"))
    if busy and isinstance(outcome, Found):
        return replace(outcome, note=f"{outcome.note}; {busy}")
    return outcome


def busy_note(loadavg: str | None, cores: int | None) -> str:
    """What to say of a machine that was busy before we measured: over half of its CPUs, at least one."""
    words = (loadavg or "").split()
    load = float(words[0]) if words and words[0].replace(".", "", 1).isdigit() else 0.0
    if load <= max((cores or 1) / 2, 1.0):
        return ""
    return f"{BUSY} (load {load:.1f}): --refresh measures again"


def _taken(
    host: Host, probe: Timed, subject: Subject, machine: Machine, outcome: Outcome[Figures], took: float
) -> tuple[Machine, ProbeReport]:
    """The machine with an outcome in it, kept if there is something to keep."""
    if not isinstance(outcome, Found):
        status = "absent" if isinstance(outcome, Absent) else "failed"
        report = ProbeReport(probe.name, status, outcome.reason, round(took, 6))  # type: ignore[arg-type]
        if status == "failed" and probe.keeps_failure and probe.about is not None:
            entry = store.Entry({FAILED: True}, outcome.reason, time.strftime("%Y-%m-%d"), took)
            store.save(host, probe.name, _about(probe.about, subject), entry)
        return _reported(machine, report), report
    if probe.about is not None:
        entry = store.Entry(outcome.value, outcome.note, time.strftime("%Y-%m-%d"), took)
        store.save(host, probe.name, _about(probe.about, subject), entry)
    report = ProbeReport(probe.name, "found", outcome.note, round(took, 6))
    return _reported(probe.apply(machine, outcome.value), report), report


def _kept(host: Host, probe: Timed, subject: Subject, machine: Machine) -> Machine | None:
    """The machine with kept figures of one probe; None where there are none that make sense."""
    if probe.about is None:
        return None
    entry = store.load(host, probe.name, _about(probe.about, subject))
    if entry is None:
        return None
    if entry.figures.get(FAILED) is True:
        reason = f"{clean(entry.note)} (on {clean(entry.when)}, after {entry.duration_s:.1f} s; --refresh tries again)"
        return _reported(machine, ProbeReport(probe.name, "failed", reason, 0.0))
    try:
        changed = probe.apply(machine, entry.figures)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    note = f"{clean(entry.note)} (kept from {clean(entry.when)}, took {entry.duration_s:.1f} s)"
    return _reported(changed, ProbeReport(probe.name, "found", note, 0.0))


def _about(about: Callable[[Subject], tuple[str, ...]], subject: Subject) -> tuple[str, ...]:
    return (*store.machine_key(subject.machine), *about(subject))


def _reported(machine: Machine, report: ProbeReport) -> Machine:
    return replace(machine, probes=(*machine.probes, report))


def with_idle(host: Host, machine: Machine) -> Machine:
    """The machine with the most memory that was ever seen available on it, which is kept when it grows by 1 %."""
    now, about = machine.ram.available_bytes, store.machine_key(machine)
    if now is None:
        return machine
    entry = store.load(host, "idle", about)
    before = entry.figures.get("available_bytes") if entry is not None else None
    known = before if isinstance(before, int) and 0 < before <= machine.ram.total_bytes else 0
    if now > known * 1.01:
        store.save(host, "idle", about, store.Entry({"available_bytes": now}, "", time.strftime("%Y-%m-%d"), 0.0))
    return replace(machine, ram=_idle(machine.ram, max(now, known)))


def _idle(ram: Ram, idle_bytes: int) -> Ram:
    return replace(ram, idle_bytes=idle_bytes)
