"""Timed probes of ``--auto`` and ``probe`` on this machine: progress, kept figures, interrupts, kills. No times."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.demo import DemoModel

Run = Callable[..., subprocess.CompletedProcess[str]]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
READY_S = 30.0


@pytest.fixture
def own_cache(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def reports(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {report["name"]: report for report in json.loads(done.stdout)["probes"]}


def test_what_is_measured_is_told_once_and_kept(run: Run, random_demo: DemoModel) -> None:
    first = run("probe", random_demo.path, "--json", "--refresh")
    assert first.returncode == 0
    lines = first.stderr.splitlines()
    assert lines[0].startswith("measuring RAM read rate") and lines[1].startswith("ram-rate: ")
    assert all("\x1b" not in line for line in lines)
    machine = json.loads(first.stdout)
    if reports(first)["ram-rate"]["status"] == "found":
        assert machine["ram"]["read_bps"]["source"] == "measured"
        assert machine["ram"]["read_bps"]["duration_s"] > 0
        assert 1 <= machine["cpu"]["read_threads"]["value"] <= machine["cpu"]["physical_cores"]
        again = run("probe", random_demo.path, "--json")
        assert "ram-rate" not in again.stderr
        assert json.loads(again.stdout)["ram"]["read_bps"] == machine["ram"]["read_bps"]
        fit = run("--fit", random_demo.path, "--why")
        assert fit.stderr == "" and "RAM 50 GB/s" not in fit.stdout
    assert {"ram-rate", "link-rate", "disk-rate"} <= set(reports(first))


def test_quiet(run: Run) -> None:
    done = run("probe", "--json", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert reports(done)["disk-rate"]["reason"] == "no local model was named"


def test_a_damaged_store_is_no_error(run: Run, own_cache: dict[str, str]) -> None:
    def once() -> subprocess.CompletedProcess[str]:
        return run("probe", "--json", "--budget", "0", env=own_cache)

    before = once()
    for path in Path(own_cache["XDG_CACHE_HOME"]).rglob("*.json"):
        path.write_text('{"schema": "moeplan.measured/1", ')
    after = once()
    assert (after.returncode, after.stderr) == (0, "")
    assert reports(after).keys() == reports(before).keys()


def start(environment: dict[str, str], folder: Path, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "planner", "probe", "--refresh", *args]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


@posix
def test_an_interrupt_goes_on_with_what_is_done(
    environment: dict[str, str], own_cache: dict[str, str], tmp_path: Path
) -> None:
    for _ in range(4):  # on a busy machine the signal may come after the last measurement, and then ends the command
        process = start(environment | own_cache, tmp_path, "--json", "--probe-mem")
        assert process.stderr is not None
        seen = ""
        while "memory-taken" not in seen and "how much RAM" not in seen:
            seen = process.stderr.readline()
            assert seen, "ended before it took memory"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=READY_S)
        if process.returncode != 130:
            break
    assert process.returncode == 0
    found = {report["name"]: report for report in json.loads(out)["probes"]}
    assert "not measured: interrupted" in {report.get("reason") for report in found.values()}
    assert found["ram-rate"]["status"] != "failed"


@posix
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_the_end_of_the_program_goes_on_with_nothing(
    environment: dict[str, str], own_cache: dict[str, str], tmp_path: Path, name: str
) -> None:
    process = start(environment | own_cache, tmp_path, "--json")
    assert process.stderr is not None and process.stderr.readline()
    process.send_signal(getattr(signal, name))
    out, _ = process.communicate(timeout=READY_S)
    assert (process.returncode, out) == (130, "")


@posix
@pytest.mark.parametrize("seed", range(5))
def test_a_kill_leaves_nothing(
    environment: dict[str, str], own_cache: dict[str, str], tmp_path: Path, seed: int
) -> None:
    """Killed at a random moment: no process with our mark is left, and no file but whole figures."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("processes are found through /proc")
    mark, temporary = f"moeplan-kill-{os.getpid()}-{seed}", tmp_path / "tmp"
    temporary.mkdir()
    marked = environment | own_cache | {"MOEPLAN_MARK": mark, "TMPDIR": str(temporary)}
    process = start(marked, tmp_path, "--probe-mem", "--budget", "10")
    time.sleep(random.Random(seed).uniform(0.1, 2.5))
    process.kill()
    process.communicate(timeout=READY_S)
    end = time.monotonic() + READY_S
    while (left := marked_processes(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == []
    assert list(temporary.iterdir()) == []
    for path in (tmp_path / "cache").rglob("*.json"):
        json.loads(path.read_text())


def marked_processes(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found
