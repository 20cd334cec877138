"""The layer probe as the pipeline runs it: cut, timed, kept, cleaned up; also when it is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from planner.demo import DemoModel
from planner.facts.machine import Engine, Machine
from planner.facts.outcome import ProbeReport
from planner.facts.workload import Workload
from planner.gguf.analyze import analyze
from planner.gguf.cut import choose
from planner.gguf.cut_folder import PREFIX, remove_stale
from planner.layer_probe import layer_probe
from planner.layer_timing import _active, _placements
from planner.pipeline import Request, _machine
from probes import timed
from probes.host import LocalHost
from probes.timed import Subject
from tests.builders import make_gpu, make_machine

ROOT = Path(__file__).parents[1]
KILLS = int(os.environ.get("MOEPLAN_TEST_KILLS", "3"))


class Quiet:
    """A listener that keeps the reports."""

    def __init__(self) -> None:
        self.reports: list[ProbeReport] = []

    def begin(self, name: str, what: str, purpose: str) -> None:
        pass

    def end(self, report: ProbeReport) -> None:
        self.reports.append(report)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where cuts are written in this test."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def here(engine: Path | None) -> Machine:
    found = Engine("llama.cpp", 1, server=str(engine / "llama-server")) if engine else None
    machine = make_machine(engine=found)
    return replace(machine, cpu=replace(machine.cpu, physical_cores=1))


def run(host: LocalHost, subject: Subject, engine: Path | None, budget_s: float = 12.0) -> tuple[Machine, Quiet]:
    quiet, probe = Quiet(), layer_probe(str(engine) if engine else None, ())
    return timed.measure(host, subject, quiet, budget_s=budget_s, probes=(probe,)), quiet


def test_measured_once_and_kept(engine: Path, random_demo: DemoModel, base: Path, tmp_path: Path) -> None:
    model, host = analyze(random_demo.path), LocalHost(cache_dir=str(tmp_path / "cache"))
    subject = Subject(here(engine), model)
    machine, quiet = run(host, subject, engine)
    assert list(base.iterdir()) == []
    assert [report.status for report in quiet.reports] == ["found"], quiet.reports
    assert machine.layers
    for rate in machine.layers:
        assert (rate.model, rate.device, rate.experts, rate.threads) == (model.fingerprint, "CPU", "device", 1)
        assert rate.decode_s is not None or rate.prefill_points
    start = time.monotonic()
    again, quiet = run(host, subject, engine)
    assert again.layers == machine.layers and quiet.reports == []
    assert time.monotonic() - start < 1.0
    other, _ = run(host, Subject(replace(subject.machine, engine=Engine("llama.cpp", 2)), model), engine, 0.0)
    assert other.layers == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"machine": here(None)}, "no llama.cpp to time it with"),
        ({"model": None}, "no local model was named"),
        ({"machine": replace(here(Path("nowhere")), ram=replace(here(None).ram, available_bytes=1000))}, "at most 500"),
    ],
)
def test_what_is_not_measured_says_why(
    change: dict[str, object], says: str, random_demo: DemoModel, base: Path, tmp_path: Path, fake_engine: Path
) -> None:
    subject = replace(Subject(here(fake_engine), analyze(random_demo.path)), **change)  # type: ignore[arg-type]
    machine, _ = run(LocalHost(cache_dir=str(tmp_path / "cache")), subject, fake_engine)
    assert machine.layers == ()
    (report,) = machine.probes
    assert report.status == "absent" and says in report.reason
    assert list(base.iterdir()) == []


@pytest.fixture
def fake_engine(tmp_path: Path) -> Path:
    """A llama-bench that lists its options and ends badly whenever it should time something."""
    if os.name != "posix":
        pytest.skip("a script as a program")
    folder = tmp_path / "engine"
    folder.mkdir()
    for name in ("llama-server", "llama-bench"):
        program = folder / name
        program.write_text(
            '#!/bin/sh\n[ "$1" = --help ] && echo "  -p, --n-prompt <n>" && exit 0\necho broken >&2\nexit 3\n'
        )
        program.chmod(0o755)
    return folder


def test_an_engine_that_fails_is_reported(
    random_demo: DemoModel, base: Path, tmp_path: Path, fake_engine: Path
) -> None:
    host, model = LocalHost(cache_dir=str(tmp_path / "cache")), analyze(random_demo.path)
    machine, quiet = run(host, Subject(here(fake_engine), model), fake_engine)
    (report,) = quiet.reports
    assert report.status == "failed"
    broken = (
        "layer (CPU) left out: ended with status 3 and said: broken; before that, writing the layers to a file took "
    )
    assert report.reason.startswith(broken) and report.reason.endswith(" s")
    assert machine.layers == () and list(base.iterdir()) == []
    machine, quiet = run(host, Subject(here(fake_engine), model), fake_engine)
    assert not quiet.reports, "a failure of half a minute is kept"
    assert "--refresh tries again" in machine.probes[-1].reason


def test_a_full_device_is_timed_with_the_experts_in_ram_only(random_demo: DemoModel) -> None:
    model = analyze(random_demo.path)
    pair = choose(model, _active(model), 1 << 40)
    machine = make_machine(make_gpu("CUDA0", free_bytes=1000), make_gpu("CUDA1"))
    assert [place.words for place in _placements(machine, model, pair)] == [
        "CPU",
        "CUDA0, experts in RAM",
        "CUDA1",
        "CUDA1, experts in RAM",
    ]


PROBE = """
import sys
from planner.gguf.analyze import analyze
from planner.layer_probe import layer_probe
from probes import timed
from probes.collect import collect
from probes.host import LocalHost
class Quiet:
    def begin(self, *words): print("begun", flush=True)
    def end(self, report): pass
host, engine = LocalHost(cache_dir=sys.argv[3]), sys.argv[2]
machine = collect(host, model_path=sys.argv[1], llama=engine)
timed.measure(host, timed.Subject(machine, analyze(sys.argv[1])), Quiet(), probes=(layer_probe(engine, ()),))
"""


def children(marker: str) -> list[str]:
    """Command lines of running processes that name the marker (a path of this test alone)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found += [text] if marker in text else []
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.parametrize("seed", range(KILLS))
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_at_any_moment_it_leaves_nothing(
    engine: Path, random_demo: DemoModel, base: Path, tmp_path: Path, seed: int, number: signal.Signals
) -> None:
    argv = [sys.executable, "-c", PROBE, random_demo.path, str(engine), str(tmp_path / "cache")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    time.sleep(random.Random(seed).uniform(0.0, 2.5))
    process.send_signal(number)
    process.wait(20)
    deadline = time.monotonic() + 3
    while children(str(base)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children(str(base)) == []
    if number == signal.SIGKILL:
        remove_stale(str(base))  # what every start does first
    assert [path.name for path in base.iterdir() if path.name.startswith(PREFIX)] == []


def test_a_record_of_another_model_is_not_used(
    random_demo: DemoModel, machine_file: Callable[[str], Path], tmp_path: Path
) -> None:
    model = analyze(random_demo.path)
    text = machine_file("desktop-16gb-wddm").read_text().rstrip()
    rate = '{"model": "%s", "device": "CUDA0", "kind": "moe", "decode_s": 0.001}'
    both = f"{rate % model.fingerprint}, {rate % 'another'}"
    path = tmp_path / "machine.json"
    path.write_text(f'{text[:-1].rstrip()}, "layers": [{both}]}}')
    machine = _machine(Request(random_demo.path, Workload(), machine_file=str(path)), model)
    assert [layer.model for layer in machine.layers] == [model.fingerprint]
