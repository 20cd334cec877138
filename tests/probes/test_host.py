from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from probes.commands import MAX_OUTPUT
from probes.host import LocalHost

posix = pytest.mark.skipif(sys.platform == "win32", reason="process groups and signals are POSIX")


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *arguments)


def test_run_returns_both_streams_and_the_status() -> None:
    run = LocalHost().run(python("import sys; print('a'); print('b', file=sys.stderr); sys.exit(3)"), 20)
    assert (run.returncode, run.stdout.strip(), run.stderr.strip(), run.problem) == (3, "a", "b", "")


def test_stdin_is_closed_and_no_shell_expands() -> None:
    run = LocalHost().run(python("import sys; print(repr(sys.stdin.read()), sys.argv)", "$HOME; ls"), 20)
    assert run.stdout.strip() == "'' ['-c', '$HOME; ls']"


def test_env_is_added() -> None:
    code = "import os; print(os.environ['MOEPLAN_X'], 'PATH' in os.environ)"
    assert LocalHost().run(python(code), 20, {"MOEPLAN_X": "1"}).stdout.split() == ["1", "True"]


def test_missing_program() -> None:
    run = LocalHost().run(("/nowhere/llama-server",), 5)
    assert run.returncode is None
    assert run.problem.startswith("could not start")


def test_timeout_ends_it() -> None:
    start = time.monotonic()
    run = LocalHost().run(python("import time; print('x', flush=True); time.sleep(60)"), 1.0)
    assert time.monotonic() - start < 10
    assert (run.returncode, run.stdout.strip()) == (None, "x")
    assert run.problem == "did not end within 1 s"
    assert LocalHost().run((sys.executable, "-c", "import time; time.sleep(9)"), 0.2907).problem.endswith("0.3 s")


@posix
@pytest.mark.parametrize("parent_waits", [True, False])
def test_children_end_with_the_call(tmp_path: Path, parent_waits: bool) -> None:
    """A child that holds the pipes open neither blocks the call nor outlives it."""
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        f"time.sleep({60 if parent_waits else 0})\n"
    )
    start = time.monotonic()
    LocalHost().run(python(code), 3.0)
    assert time.monotonic() - start < 15
    assert _gone(int(note.read_text()))


def _gone(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_output_is_capped_without_blocking() -> None:
    run = LocalHost().run(python(f"import sys; sys.stdout.write('x' * {3 * MAX_OUTPUT})"), 30)
    assert (run.returncode, len(run.stdout)) == (0, MAX_OUTPUT)


def test_undecodable_output_is_replaced() -> None:
    run = LocalHost().run(python("import sys; sys.stdout.buffer.write(bytes([65, 255, 66]))"), 20)
    assert run.stdout == "A\ufffdB"


def test_root_moves_kernel_paths_only(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("here")
    host = LocalHost(root=str(tmp_path))
    assert host.read_text("/proc/meminfo") == "here"
    assert host.glob("/proc/mem*") == ("/proc/meminfo",)
    assert host.exists("/proc/meminfo") and not host.exists("/proc/cpuinfo")
    assert host.read_text(str(tmp_path / "proc" / "meminfo")) == "here"


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    host = LocalHost(cache_dir=str(tmp_path))
    assert host.read_text(str(tmp_path)) is None
    assert host.read_text("/bad\x00name") is None
    assert host.stamp(str(tmp_path / "x")) is None
    assert host.which("no-such-program-at-all") is None
    assert host.package("no_such_package_at_all") is None
    assert host.library("no_such_package_at_all") is None
    assert host.cached("k") is None


def test_cache_keeps_and_replaces(tmp_path: Path) -> None:
    host = LocalHost(cache_dir=str(tmp_path / "deep" / "er"))
    assert host.keep("k", "one") == "" == host.keep("k", "two")
    assert host.cached("k") == "two"
    assert [path.name for path in (tmp_path / "deep" / "er").iterdir()] == ["k.json"]


def test_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    host = LocalHost(cache_dir=str(tmp_path / "file" / "under"))
    assert host.keep("k", "one").startswith(f"{tmp_path / 'file' / 'under'}: ")
    assert host.cached("k") is None


def test_package_is_found_without_importing_it() -> None:
    folder = LocalHost().package("pytest")
    assert folder is not None and Path(folder, "__init__.py").is_file()
