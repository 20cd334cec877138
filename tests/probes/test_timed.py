from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from planner.errors import Ended
from planner.facts.machine import Cpu, Disk, Gpu, Machine, Os, Ram
from planner.facts.outcome import ProbeReport
from planner.facts.reading import Source
from probes import bench_memory, timed
from probes.host import CompletedRun
from probes.probe import Absent, Failed, Found, Outcome
from probes.timed import Subject, Timed

MACHINE = Machine(Os.LINUX, Ram(32 << 30, 8 << 30), Cpu("CPU", 8, 8, 16), disk=Disk("/m.gguf", "ext4"))
HERE = Subject(MACHINE, None)


class Host:
    """A cache, a load average and a clock that steps."""

    def __init__(self, *, load: str = "0.10 0 0 1/2 3", step: float = 1.0) -> None:
        self.kept: dict[str, str] = {}
        self.now, self.step, self.load = 0.0, step, load
        self.said = ""

    def cached(self, key: str) -> str | None:
        return self.kept.get(key)

    def keep(self, key: str, text: str) -> str:
        self.kept[key] = text
        return ""

    def clock(self) -> float:
        self.now += self.step
        return self.now

    def read_text(self, path: str) -> str | None:
        return self.load if path == "/proc/loadavg" else None

    def run_script(
        self, script: str, arguments: tuple[str, ...], timeout_s: float, heard: object = None
    ) -> CompletedRun:
        return CompletedRun(0, self.said)


class Said:
    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[ProbeReport] = []

    def begin(self, name: str, what: str, purpose: str) -> None:
        self.begun.append(name)

    def end(self, report: ProbeReport) -> None:
        self.ended.append(report)


def probe(name: str, answer: Callable[[], Outcome[dict[str, Any]]], nothing: str = "") -> Timed:
    """A probe that answers and sets the model name of the CPU."""
    return Timed(
        name,
        what=name,
        purpose="a test",
        most_s=30.0,
        nothing=lambda subject: nothing,
        about=lambda subject: (name,),
        measure=lambda host, subject, seconds: answer(),
        apply=lambda machine, data: replace(machine, cpu=replace(machine.cpu, name=data["name"])),
    )


def found(name: str) -> Callable[[], Outcome[dict[str, Any]]]:
    return lambda: Found({"name": name}, "a note")


def raising(error: BaseException) -> Callable[[], Outcome[dict[str, Any]]]:
    def answer() -> Outcome[dict[str, Any]]:
        raise error

    return answer


def measure(host: Any, *probes: Timed, **options: Any) -> tuple[Machine, Said]:
    said = Said()
    return timed.measure(host, HERE, said, probes=probes, **options), said


def test_the_second_time_nothing_is_measured() -> None:
    host = Host()
    first, said = measure(host, probe("a", found("one")))
    assert first.cpu.name == "one" and said.begun == ["a"] and said.ended[0].status == "found"
    never = probe("a", raising(AssertionError()))
    again, said = measure(host, never)
    assert again.cpu.name == "one" and not said.begun
    assert "kept from" in again.probes[-1].reason and again.probes[-1].duration_s == 0
    assert timed.stored(host, HERE, (never,)).cpu.name == "one"  # type: ignore[arg-type]


def test_refresh_measures_again() -> None:
    host = Host()
    measure(host, probe("a", found("one")))
    assert measure(host, probe("a", found("two")), refresh=True)[0].cpu.name == "two"
    assert measure(host, probe("a", raising(AssertionError())))[0].cpu.name == "two"


def test_stored_figures_of_another_machine_do_not_count() -> None:
    host, a = Host(), probe("a", found("one"))
    measure(host, a)
    other = Subject(replace(MACHINE, ram=Ram(64 << 30)), None)
    assert timed.stored(host, other, (a,)).cpu.name == "CPU"  # type: ignore[arg-type]


def test_the_budget_ends_it() -> None:
    host = Host(step=10.0)
    machine, said = measure(host, *(probe(name, found(name)) for name in "abcdef"), budget_s=55.0)
    assert said.begun == ["a", "b"]
    assert [report.status for report in machine.probes] == ["found"] * 2 + ["absent"] * 4
    assert machine.probes[-1].reason == "not measured: no time left of 55 s"


def test_no_budget_measures_nothing() -> None:
    machine, said = measure(Host(), probe("a", found("one")), budget_s=0.0)
    assert not said.begun and machine.probes[0].status == "absent"


def test_an_interrupt_keeps_what_is_done() -> None:
    host = Host()
    probes = (probe("a", found("one")), probe("b", raising(KeyboardInterrupt())), probe("c", found("three")))
    machine, said = measure(host, *probes)
    assert machine.cpu.name == "one" and said.begun == ["a", "b"]
    assert [(r.name, r.status, r.reason) for r in machine.probes[1:]] == [
        ("b", "absent", "not measured: interrupted"),
        ("c", "absent", "not measured: interrupted"),
    ]
    assert measure(host, probe("a", raising(AssertionError())))[0].cpu.name == "one"


def test_the_end_of_the_program_is_no_interrupt() -> None:
    with pytest.raises(Ended):
        measure(Host(), probe("a", raising(Ended())), probe("b", found("two")))


def test_a_failure_stays_its_own_and_is_not_kept() -> None:
    host = Host()
    broken = probe("a", raising(ZeroDivisionError("x\x1b")))
    machine, _ = measure(host, broken, probe("b", found("two")))
    assert [(r.status, r.reason) for r in machine.probes] == [("failed", "ZeroDivisionError: x"), ("found", "a note")]
    assert measure(host, probe("a", found("one")))[1].begun == ["a"]


def test_a_probe_with_nothing_to_do_is_silent() -> None:
    machine, said = measure(Host(), probe("a", raising(AssertionError()), nothing="no GPU"))
    assert not said.begun and machine.probes == (ProbeReport("a", "absent", "no GPU", 0.0),)


def test_a_damaged_record_is_measured_again() -> None:
    host = Host()
    measure(host, probe("a", found("one")))
    host.kept = {key: text.replace('"name"', '"nome"') for key, text in host.kept.items()}
    assert measure(host, probe("a", found("two")))[0].cpu.name == "two"


@pytest.mark.parametrize(
    ("loadavg", "cores", "busy"),
    [
        ("0.99 0.5 0.1 1/2 3", 2, False),
        ("1.50 0.5 0.1 1/2 3", 2, True),
        ("6.00 0.5 0.1 1/2 3", 16, False),
        (None, 2, False),
        ("x", None, False),
    ],
)
def test_a_busy_machine_is_told(loadavg: str | None, cores: int | None, busy: bool) -> None:
    assert bool(timed.busy_note(loadavg, cores)) is busy


def test_the_note_of_a_busy_machine_is_kept() -> None:
    host = Host(load="9.00 1 1 1/2 3")
    machine, _ = measure(host, probe("a", found("one")))
    assert "busy (load 9.0)" in machine.probes[0].reason


def test_idle_memory_is_the_most_that_was_seen() -> None:
    host = Host()

    def idle(available: int | None) -> int | None:
        machine = replace(MACHINE, ram=replace(MACHINE.ram, available_bytes=available))
        return timed.with_idle(host, machine).ram.idle_bytes  # type: ignore[arg-type]

    assert [idle(8 << 30), idle(4 << 30), idle(20 << 30), idle(1 << 30), idle(None)] == [
        8 << 30, 8 << 30, 20 << 30, 20 << 30, None,
    ]  # fmt: skip


@pytest.mark.parametrize(("said", "available"), [("9", 9 << 30), ("7", 8 << 30), ("64", 32 << 30)])
def test_taking_memory_raises_and_never_lowers(said: str, available: int) -> None:
    host = Host()
    host.said = f"1000\n{int(said) << 30}\nlittle is left\n"
    outcome = bench_memory.measure(host, MACHINE, 10.0)  # type: ignore[arg-type]
    assert isinstance(outcome, Found) and "little is left" in outcome.note
    assert bench_memory.apply(MACHINE, outcome.value).ram.available_bytes == available


def test_taking_memory_that_says_nothing() -> None:
    assert isinstance(bench_memory.measure(Host(), MACHINE, 10.0), Failed)  # type: ignore[arg-type]
    unknown = replace(MACHINE, ram=Ram(32 << 30))
    assert isinstance(bench_memory.measure(Host(), unknown, 10.0), Absent)  # type: ignore[arg-type]


def test_ram_figures_go_to_ram_and_cpu() -> None:
    rows = [{"threads": n, "value": rate, "method": f"{n}", "spread": 1.0, "duration_s": 0.1}
            for n, rate in ((1, 20e9), (4, 59e9), (8, 60e9))]  # fmt: skip
    [ram, *_] = timed.TIMED
    machine = ram.apply(MACHINE, {"threads": rows})
    assert machine.ram.read_bps is not None and machine.cpu.read_threads is not None
    assert (machine.ram.read_bps.value, machine.ram.read_bps.source) == (60e9, Source.MEASURED)
    assert machine.cpu.read_threads.value == 4


def test_what_figures_hold_for() -> None:
    _, link, disk = timed.TIMED
    assert link.about and disk.about
    one = Subject(replace(MACHINE, gpus=(Gpu("CUDA0", 1 << 30, "G", driver="580"),)), None)
    two = Subject(replace(MACHINE, gpus=(Gpu("CUDA0", 1 << 30, "G", driver="581"),)), None)
    assert link.about(one) != link.about(two)
    assert disk.nothing(HERE) == "no local model was named"


def test_a_costly_failure_is_not_tried_in_every_run() -> None:
    host, tries = Host(), []

    def fails() -> Outcome[dict[str, Any]]:
        tries.append(1)
        return Failed("it broke")

    costly = replace(probe("layer-rate", fails), keeps_failure=True)
    machines = [timed.measure(host, HERE, Said(), refresh=again, probes=(costly,)) for again in (False, False, True)]  # type: ignore[arg-type]
    assert len(tries) == 2
    assert [found.probes[-1].status for found in machines] == ["failed"] * 3
    assert "--refresh tries again" in machines[1].probes[-1].reason
