"""llama-bench: its command line by build, its answers, and a fake one that dies, hangs or talks junk."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from planner.facts.machine import Os
from probes import bench_engine
from probes.bench_engine import Job, LlamaBench, Placement, parse
from probes.host import CompletedRun, LocalHost
from probes.layer_fit import Timing
from probes.llama_find import Place
from probes.tied import tied

NEW = ("--device", "--load-mode", "--n-cpu-moe", "--n-prompt", "--rpc")
ROW = {"n_prompt": 64, "n_gen": 0, "samples_ns": [2_000_000, 3_000_000]}
ANSWER = {"n_prompt": 0, "n_gen": 8, "samples_ns": [80_000_000]}


def job(placement: Placement) -> Job:
    return Job("cut.gguf", placement, (64, 256), 8, 2, 6)


def words(flags: tuple[str, ...], placement: Placement, *rpc: str) -> str:
    argv = LlamaBench(LocalHost(), "llama-bench", flags, rpc).argv(job(placement))
    return argv if isinstance(argv, str) else " ".join(argv)


COMMON = "llama-bench -m cut.gguf -o jsonl -r 2 -t 6 -p 64,256 -n 8 -b 256 -ub 256"


@pytest.mark.parametrize(
    ("flags", "placement", "expected"),
    [
        (NEW, Placement("CPU"), f"{COMMON} --load-mode none -ngl 0 -dev none"),
        (NEW, Placement("CUDA1"), f"{COMMON} --load-mode none -dev CUDA1 -ngl 999"),
        (NEW, Placement("CUDA1", True), f"{COMMON} --load-mode none -dev CUDA1 -ngl 999 -ncmoe 999"),
        (NEW, Placement("RPC0"), f"{COMMON} --load-mode none --rpc there:1 -dev RPC0 -ngl 999"),
        (("--n-prompt",), Placement("CPU"), f"{COMMON} -mmp 0 -ngl 0"),
        (("--n-prompt",), Placement("CUDA0"), "this build of llama-bench cannot choose a device"),
        (("--device",), Placement("CUDA0", True), "this build of llama-bench has no --n-cpu-moe"),
    ],
)
def test_command_line(flags: tuple[str, ...], placement: Placement, expected: str) -> None:
    assert words(flags, placement, "there:1") == expected


def test_answers_become_seconds() -> None:
    text = "\n".join(("load_backend: x", json.dumps(ROW), "{not json", "[1]", json.dumps(ANSWER)))
    assert parse(CompletedRun(0, text)) == Timing((pytest.approx(0.01),), {64: pytest.approx((0.002, 0.003))})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (CompletedRun(None, problem="did not end within 3 s"), "did not end within 3 s"),
        (CompletedRun(-6, json.dumps(ROW), "GGML_ASSERT"), "ended with status -6 and said: GGML_ASSERT"),
        (CompletedRun(0, "", "warning"), "no times in its answer"),
        (CompletedRun(0, json.dumps({**ROW, "samples_ns": [0]})), "no times"),
        (CompletedRun(0, json.dumps({**ROW, "samples_ns": []})), "no times"),
        (CompletedRun(0, json.dumps({**ROW, "samples_ns": [-1]})), "no times"),
        (CompletedRun(0, json.dumps({**ROW, "samples_ns": ["1"]})), "no times"),
        (CompletedRun(0, json.dumps({**ROW, "n_prompt": "64"})), "no times"),
        (CompletedRun(0, '{"n_prompt": 64, "n_gen": 0, "samples_ns": [NaN]}'), "no times"),
        (CompletedRun(0, "{" * 100_000), "no times"),
    ],
)
def test_nothing_is_believed_of_a_bad_answer(run: CompletedRun, says: str) -> None:
    found = parse(run)
    assert isinstance(found, str) and says in found


FAKE = """#!{python}
import os, signal, sys, time
if "--help" in sys.argv:
    print("  -p, --n-prompt <n>\\n  -dev, --device <d>\\n  -ncmoe, --n-cpu-moe <n>")
    sys.exit()
mode = os.environ["FAKE_MODE"]
if mode == "dies":
    os.kill(os.getpid(), signal.SIGSEGV)
if mode == "hangs":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)
print("\\x1b[2J" * 1000 if mode == "junk" else '{{"n_prompt": 64, "n_gen": 0, "samples_ns": [1000000]}}')
"""


@pytest.fixture
def fake(tmp_path: Path) -> Place:
    if os.name != "posix":
        pytest.skip("a script as a program")
    program = tmp_path / "llama-bench"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    return Place(server=str(tmp_path / "llama-server"))


@pytest.mark.parametrize(
    ("mode", "says"),
    [("dies", "ended with status -11"), ("hangs", "did not end within 1 s"), ("junk", "no times"), ("well", "")],
)
def test_a_fake_program(fake: Place, monkeypatch: pytest.MonkeyPatch, mode: str, says: str) -> None:
    monkeypatch.setenv("FAKE_MODE", mode)
    bench = bench_engine.find(LocalHost(), fake, ())
    assert not isinstance(bench, str)
    start = time.monotonic()
    found = bench.time(job(Placement("CPU")), 1.0 if mode == "hangs" else 20.0)
    assert time.monotonic() - start < 15
    if says:
        assert isinstance(found, str) and says in found
        assert found.isprintable()
    else:
        assert found == Timing((), {64: (pytest.approx(0.001),)})  # type: ignore[arg-type]


def test_no_program_beside_the_server(tmp_path: Path) -> None:
    found = bench_engine.find(LocalHost(), Place(server=str(tmp_path / "llama-server")), ())
    assert found == "no llama-bench beside the server"


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_tied_command_still_answers() -> None:
    host = LocalHost()
    assert host.os is Os.LINUX
    done = host.run(tied(host, (sys.executable, "-c", "print(5)")), 20)
    assert (done.returncode, done.stdout) == (0, "5\n")


def test_the_real_program(engine: Path, random_demo: object) -> None:
    bench = bench_engine.find(LocalHost(), Place(server=str(engine / "llama-server")), ())
    assert not isinstance(bench, str)
    path = getattr(random_demo, "path")  # noqa: B009
    found = bench.time(Job(path, Placement("CPU"), (16, 32), 2, 2, 1), 60)
    assert isinstance(found, Timing), found
    assert len(found.decode_s) == 2 and sorted(found.prefill_s) == [16, 32]
