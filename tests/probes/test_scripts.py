"""The scripts that run in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from planner.units import MIB
from probes import bench_memory, script_cuda, script_touch
from probes.bench_link import parse
from probes.host import LocalHost

PROBES = Path(bench_memory.__file__).parent
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
GONE_S = 5.0


@pytest.mark.parametrize(
    ("now", "times", "reason"),
    [
        ({"MemAvailable": 8 << 30, "SwapFree": 1 << 30}, [0.1, 0.1], ""),
        ({"MemAvailable": 8 << 30, "SwapFree": 900 << 20}, [0.1], "swap grows"),
        ({"MemAvailable": 100 << 20, "SwapFree": 1 << 30}, [0.1], "little is left"),
        ({"MemAvailable": 8 << 30, "SwapFree": 1 << 30}, [0.1, 0.1, 0.1, 0.5], "pages come slowly"),
        ({"MemAvailable": 8 << 30, "SwapFree": 1 << 30}, [0.01, 0.01, 0.01, 0.05], ""),
        ({}, [0.1], "swap grows"),
    ],
)
def test_when_touching_stops(now: dict[str, int], times: list[float], reason: str) -> None:
    assert script_touch.stop_reason({"SwapFree": 1 << 30}, now, times) == reason


def test_touching_a_little() -> None:
    run = LocalHost().run_script("script_touch.py", (str(12 * MIB), str(4 * MIB)), 20.0)
    lines = run.stdout.split()
    assert run.returncode == 0, run.stderr
    assert lines[:1] == [str(4 * MIB)]
    assert lines[-1] in ("target", "left")  # "little is left" on a machine that is full


def test_a_machine_without_cuda_says_so() -> None:
    answer = parse(LocalHost().run_script("script_cuda.py", ("99", "0.2"), 30.0))
    assert set(answer) & {"absent", "died"}, answer


class FakeCuda:
    """A driver of one device with 1 GiB free; ``fails`` is the call that returns an error."""

    fails = ""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def ask(self, name: str, *args: Any) -> int:
        self.calls.append(name)
        if name == self.fails:
            return 700
        if name == "cuDeviceGetCount":
            args[0]._obj.value = 1
        if name == "cuMemGetInfo_v2":
            args[0]._obj.value = 64 * MIB
        return 1 if name == "cuMemHostAlloc" else 0

    def call(self, name: str, *args: Any) -> None:
        if self.ask(name, *args):
            raise script_cuda.Died(f"{name}: illegal address (700)")


def cuda_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    monkeypatch.setattr(script_cuda, "Cuda", FakeCuda)
    monkeypatch.setattr(sys, "argv", ["script_cuda.py", *arguments])
    script_cuda.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_copies_are_repeated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer = cuda_says(monkeypatch, capsys, "0", "1")
    assert len(answer["pageable"]) == len(answer["copy"]) == script_cuda.REPEATS
    assert "pinned" not in answer, "page-locked memory was refused"
    assert answer["shared"] is False


def test_a_device_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(FakeCuda, "fails", "cuMemcpyHtoD_v2")
    assert cuda_says(monkeypatch, capsys, "0", "1") == {"died": "cuMemcpyHtoD_v2: illegal address (700)"}


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert cuda_says(monkeypatch, capsys, "1", "1") == {"absent": "the CUDA driver lists 1 devices"}


def test_shared_memory_must_move_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(*readings: tuple[int, int]) -> bool:
        left = iter(readings)
        monkeypatch.setattr(script_cuda, "memory_now", lambda: next(left))
        return script_cuda.is_shared(FakeCuda(), script_cuda.TEST_BYTES)  # type: ignore[arg-type]

    gib = 1 << 30
    assert answers((0, 8 * gib), (0, 8 * gib - 256 * MIB), (0, 8 * gib), (0, 8 * gib - 256 * MIB))
    assert answers((0, 0), (256 * MIB, 0), (256 * MIB, 0), (512 * MIB, 0))
    assert not answers((0, 8 * gib), (0, 7 * gib), (0, 8 * gib), (0, 8 * gib))
    assert not answers((0, 8 * gib), (0, 8 * gib), (0, 8 * gib), (0, 8 * gib))


@posix
def test_a_script_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    note, script = tmp_path / "pid", tmp_path / "script.py"
    script.write_text(f"import os, time\nopen({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n")
    code = f"from probes.host import LocalHost; LocalHost().run_script({str(script)!r}, (), 60)"
    starter = subprocess.Popen([sys.executable, "-c", code], cwd=PROBES.parent)
    end = time.monotonic() + 30
    while not (note.exists() and note.read_text()) and time.monotonic() < end:
        time.sleep(0.01)
    child = int(note.read_text())
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    assert gone(child)


def gone(pid: int) -> bool:
    """True once no process has that id, or only one that waits to be reaped."""
    end = time.monotonic() + GONE_S
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False
