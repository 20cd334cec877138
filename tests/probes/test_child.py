"""A program that runs on ends with us, whatever becomes of us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from planner.facts.machine import Os
from probes import child
from probes.commands import HEAD_LINES, TAIL_LINES
from probes.host import LocalHost

ROOT = Path(__file__).parents[2]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


class Elsewhere(LocalHost):
    """This machine, taken for one without ``PR_SET_PDEATHSIG``."""

    @property
    def os(self) -> Os:
        return Os.MACOS


def begun(code: str, host: LocalHost | None = None) -> child.Child:
    process = child.start(host or LocalHost(), (sys.executable, "-u", "-c", code))
    assert isinstance(process, child.Child)
    return process


def wait_for(process: child.Child, text: str) -> None:
    until = time.monotonic() + 20
    while text not in "\n".join(process.lines()):
        assert time.monotonic() < until and process.status is None
        time.sleep(0.01)


def test_it_is_asked_to_end_and_its_words_are_kept() -> None:
    process = begun("import time; print('up'); time.sleep(60)")
    wait_for(process, "up")
    process.end()
    assert process.status == -signal.SIGTERM and process.lines() == ("up",)


@posix
def test_one_that_does_not_listen_is_made_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "GRACE_S", 0.2)
    process = begun("import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(60)")
    wait_for(process, "up")
    process.end()
    assert process.status == -signal.SIGKILL


@posix
def test_what_it_started_ends_as_well() -> None:
    code = "import subprocess, time; p = subprocess.Popen(['sleep', '60']); print(p.pid); time.sleep(60)"
    process = begun(code)
    wait_for(process, "\n" if process.lines() else "")
    until = time.monotonic() + 20
    while not process.lines() and time.monotonic() < until:
        time.sleep(0.01)
    grandchild = psutil.Process(int(process.lines()[0]))
    process.end()
    psutil.wait_procs([grandchild], timeout=5)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


@posix
def test_a_pipe_that_somebody_else_holds_is_not_waited_for() -> None:
    """What left the group lives on with our pipe in its hands; we end all the same."""
    left = "if os.fork() == 0:\n    os.setsid()\n    time.sleep(8)"
    code = f"import os, time\n{left}\nprint('here', flush=True); time.sleep(60)"
    process = begun(code)
    until = time.monotonic() + 20
    while not process.lines() and time.monotonic() < until:
        time.sleep(0.01)
    start = time.monotonic()
    process.end()
    assert process.lines() == ("here",) and time.monotonic() - start < 6


def test_a_program_that_is_not_there() -> None:
    started = child.start(Elsewhere(), ("/no/such/program",))
    assert isinstance(started, str) and "could not start" in started


def test_the_first_and_the_last_lines_are_kept() -> None:
    total = HEAD_LINES + 3 * TAIL_LINES
    process = begun(f"for n in range({total}): print(n)")
    until = time.monotonic() + 20
    while process.status is None and time.monotonic() < until:
        time.sleep(0.01)
    lines = process.lines()
    process.end()
    assert lines[:2] == ("0", "1") and lines[-1] == str(total - 1)
    assert len(lines) == HEAD_LINES + TAIL_LINES


STARTER = """
import sys, time
sys.path.insert(0, {root!r})
from planner.facts.machine import Os
from probes import child
from probes.host import LocalHost
class Host(LocalHost):
    os = {os}
process = child.start(Host(), {argv})
print(process.pid, flush=True)
time.sleep(120)
"""


@posix
@pytest.mark.parametrize("system", ["LocalHost.os", "Os.MACOS"])
def test_a_starter_that_is_killed_outright_leaves_nothing(system: str) -> None:
    """Linux by PR_SET_PDEATHSIG and the guard, elsewhere by the guard alone."""
    if system == "LocalHost.os" and sys.platform != "linux":
        pytest.skip("PR_SET_PDEATHSIG is Linux's")
    code = STARTER.format(root=str(ROOT), os=system, argv='(sys.executable, "-c", "import time; time.sleep(120)")')
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert starter.stdout is not None
        program = psutil.Process(int(starter.stdout.readline()))
        assert program.is_running()
        os.kill(starter.pid, signal.SIGKILL)
        starter.wait()
        _, alive = psutil.wait_procs([program], timeout=10)
        assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    finally:
        starter.kill()
        starter.wait()
        starter.stdout.close()  # type: ignore[union-attr]


@posix
def test_what_a_script_started_ends_as_well_if_we_are_killed_outright(tmp_path: Path) -> None:
    """A llama-server may be a shell script that starts the real one without exec."""
    script, told = tmp_path / "llama-server", tmp_path / "pid"
    script.write_text(f"#!/bin/sh\nsleep 120 &\necho $! > {told}\nwait\n")
    script.chmod(0o755)
    code = STARTER.format(root=str(ROOT), os="LocalHost.os", argv=repr((str(script),)))
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    starter.stdout.readline()
    until = time.monotonic() + 20
    while not (told.exists() and told.read_text().strip()) and time.monotonic() < until:
        time.sleep(0.01)
    program = psutil.Process(int(told.read_text()))
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    _, alive = psutil.wait_procs([program], timeout=10)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
