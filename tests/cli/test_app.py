"""The command as a whole: help, version, usage errors, streams, start time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from planner import __version__
from planner.demo import DemoModel

Run = Callable[..., subprocess.CompletedProcess[str]]
COMMANDS = ("plan", "check", "inspect", "probe", "explain", "demo")


@pytest.mark.parametrize("args", [(), ("--help",), ("-h",)], ids=["nothing", "--help", "-h"])
def test_help(run: Run, args: tuple[str, ...]) -> None:
    done = run(*args)
    assert (done.returncode, done.stderr) == (0, "")
    for word in (*COMMANDS, "moeplan --auto MODEL", "moeplan --fit MODEL", "Exit codes"):
        assert word in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(run: Run, command: str) -> None:
    done = run(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: moeplan {command}" in done.stdout


def test_version(run: Run) -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"moeplan {__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("model.gguf",), "Try: moeplan --auto model.gguf"),
        (("https://example.org/m",), "Try: moeplan --auto https://example.org/m"),
        (("inspekt", "m.gguf"), "inspekt"),
        (("--fit",), "MODEL"),
        (("--nonsense", "m.gguf"), "--nonsense"),
        (("plan", "m.gguf", "--ctx", "many"), "--ctx"),
        (("plan", "m.gguf", "--ctx", "0"), "--ctx"),
        (("plan", "m.gguf", "--headroom", "1 zig"), "expected a size such as 12GiB"),
        (("plan", "m.gguf", "--vram", "CUDA0=lots"), "expected a size such as 12GiB"),
        (("plan", "m.gguf", "--kv", "f16:"), "expected auto, a type such as q8_0, or K:V"),
        (("plan", "m.gguf", "--pin", "ub"), "expected FLAG=VALUE"),
        (("plan", "m.gguf", "--target", "b-1"), "working-set or a build such as b11549"),
        (("plan", "m.gguf", "--goal", "fame"), "--goal"),
        (("plan", "m.gguf", "--format", "xml"), "--format"),
        (("plan", "m.gguf", "--format", "text", "--json", "-o", "x"), "expected one per --format (2)"),
        (("plan", "m.gguf", "--json", "--format", "html", "-o", "x", "-o", "x"), "a file of its own per format"),
        (("plan", "m.gguf", "-o", ""), "a file of its own per format"),
        (("plan", "m.gguf", "--budget", "nan"), "nan is no number of seconds"),
        (("verify", "m.gguf", "--budget", "nan"), "nan is no number of seconds"),
        (("plan", "m.gguf", "--target", "b" + "1" * 5000), "a build such as b11549"),
        (("plan", "m.gguf", "--ctx", "２"), "is not of ASCII digits"),
        (("verify", "m.gguf", "--budget", "２"), "is not of ASCII digits"),
        (("plan", "m.gguf", "--target", "b１１５４９"), "a build such as b11549"),
        (("plan", "m.gguf", "--rpc", "::1"), "expected HOST:PORT with a port of 1 to 65535, found '::1'"),
        (("probe", "--rpc", "127.0.0.1:99999"), "expected HOST:PORT with a port of 1 to 65535"),
        (("plan", "m.gguf", "--rpc", "a:1,b:１"), "expected HOST:PORT with a port of 1 to 65535, found 'b:１'"),
        (("check", "m.gguf", "-ngl", "99"), "go after --: moeplan check MODEL -- "),
        (("run", "m.gguf", "-ngl", "99"), "go after --: moeplan run MODEL -- "),
        (("serve", "m.gguf"), "No such command 'serve'"),
        (("run", "m.gguf", "--max-trials", "-1"), "--max-trials"),
        (("verify", "m.gguf", "--", "--port", "none"), "expected 1 to 65535"),
        (("verify", "m.gguf", "--", "--host", "0.0.0.0"), "on this computer alone"),
    ],
)
def test_usage_errors(run: Run, args: tuple[str, ...], says: str) -> None:
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def modules_of(*args: str) -> set[str]:
    """Modules that a command has loaded when it ends."""
    code = (
        "import sys; from planner.cli.app import main\n"
        "try: main()\nexcept SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def test_start_is_light() -> None:
    """``--help`` loads Typer and nothing else that is heavy."""
    found = modules_of("--help")
    loaded = {name.partition(".")[0] for name in found}
    heavy = {"pydantic", "rich", "psutil", "pynvml", "cpuinfo", "gguf", "numpy", "platformdirs", "urllib3", "llama_cpp"}
    assert "typer" in loaded
    assert loaded & heavy == set()
    ours = {name for name in found if name.split(".")[0] in ("probes", "policies", "emit")}
    assert ours == set()


def test_a_command_loads_only_its_own() -> None:
    """``explain`` needs no validation, no measuring and no model reader."""
    found = modules_of("explain", "headroom")
    assert found & {"pydantic", "gguf", "numpy", "psutil", "planner.gguf.analyze", "probes.collect"} == set()
    assert "rich.console" in found


@pytest.mark.parametrize("output", [("--json",), ()])
def test_a_plan_on_a_recorded_machine_loads_little(
    random_demo: DemoModel, machine_file: Callable[[str], Path], output: tuple[str, ...]
) -> None:
    """A whole answer in half a second leaves no room for pydantic's 0.1 s (docs/decisions/006)."""
    machine = str(machine_file("desktop-16gb-wddm"))
    found = modules_of("--fit", random_demo.path, "--machine", machine, *output)
    heavy = {"pydantic", "gguf", "numpy", "psutil", "platformdirs", "tempfile", "urllib.request", "probes.collect"}
    assert "planner.search" in found and found & heavy == set()


def best_of(command: list[str], turns: int = 5) -> float:
    walls = []
    for _ in range(turns):
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        walls.append(time.perf_counter() - start)
    return min(walls)


def test_help_is_quick() -> None:
    """At most 15 starts of a bare interpreter: about 0.15 s where that takes 10 ms."""
    bare = best_of([sys.executable, "-c", "pass"])
    assert best_of([sys.executable, "-m", "planner", "--help"]) < 15 * bare


def test_ctrl_c_ends_quietly(tmp_path: Path) -> None:
    """A model that is still being read when Ctrl-C comes: exit 130, no traceback."""
    code = (
        "import os, signal\nfrom planner import pipeline\n"
        "pipeline.inspect = lambda path: os.kill(os.getpid(), signal.SIGINT)\n"
        "import sys; sys.argv = ['moeplan', 'inspect', 'm.gguf']\nfrom planner.cli.app import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 130
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("name", ["SIGHUP", "SIGTERM", "SIGINT"])
@pytest.mark.parametrize("ignored", [False, True])
def test_a_signal_ends_with_130_unless_it_was_ignored_at_the_start(name: str, ignored: bool, tmp_path: Path) -> None:
    """``nohup moeplan run M &`` outlives its terminal, also while layers are timed (in a folder for their time)."""
    code = (
        "import os, signal, sys\nfrom planner import __main__, pipeline\n"
        "from planner.gguf.cut_folder import cut_folder\n"
        "def inspect(path):\n"
        f"    with cut_folder({str(tmp_path)!r}):\n        signal.raise_signal(signal.{name})\n"
        "    print('goes on')\n    os._exit(7)\n"
        "pipeline.inspect = inspect\nsys.argv = ['moeplan', 'inspect', 'm.gguf']\n__main__.main()"
    )
    how = f'trap \'\' {name[3:]}; exec "$0" -u -c "$1"' if ignored else 'exec "$0" -u -c "$1"'
    done = subprocess.run(["sh", "-c", how, sys.executable, code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == ((7, "goes on\n", "") if ignored else (130, "", ""))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("debug", [False, True])
def test_a_defect_is_one_line(debug: bool, environment: dict[str, str]) -> None:
    code = (
        "from planner import pipeline\n"
        "def fail(path): raise ZeroDivisionError('odd \\x1b[31m')\n"
        "pipeline.inspect = fail\n"
        "import sys; sys.argv = ['moeplan', 'inspect', 'm.gguf']\nfrom planner.cli.app import main; main()"
    )
    env = environment | ({"MOEPLAN_DEBUG": "1"} if debug else {})
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert done.stdout == ""
    assert ("Traceback" in done.stderr) == debug
    if not debug:
        assert done.returncode == 3
        assert done.stderr.count("\n") == 1
        assert "a defect of moeplan: ZeroDivisionError: odd \\x1b[31m" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes")
def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    """``moeplan explain | true``."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = subprocess.Popen(
        [sys.executable, "-m", "planner", "explain", "headroom"], stdout=write_end, stderr=subprocess.PIPE, text=True
    )
    os.close(write_end)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")


@pytest.mark.skipif(os.name == "nt", reason="POSIX shells")
@pytest.mark.parametrize(("closed", "says"), [(">&-", "stdout: not writable"), ("2>&-", "")])
def test_a_stream_that_was_closed_before(closed: str, says: str) -> None:
    """A lost product is no success; notes that nobody can read are no error."""
    line = f'"$0" -m planner explain headroom {closed}'
    done = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, says in done.stderr) == (3 if says else 0, True)
    assert "defect" not in done.stderr


def test_a_usage_error_repeats_nothing_that_steers_a_terminal(run: Run) -> None:
    done = run("plan", "--fo\u202eo\x1b[31m", "x.gguf")
    assert done.returncode == 2
    assert "\\u202e" in done.stderr and "\u202e" not in done.stderr and "\x1b" not in done.stderr
