"""The real llama-server under ``moeplan run`` and ``verify``, and everything that can go wrong with it.

Never an orphan, never a wrong "verified", always a cause.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from planner.demo import DemoModel

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and scripts of POSIX")
Run = Callable[..., subprocess.CompletedProcess[str]]
ONE = ("--fit", "--pin", "threads=1", "--pin", "threads-batch=1")
SHORT = (*ONE, "--max-trials", "0", "--budget", "5")
PATIENCE_S = 90.0


class Command:
    """``moeplan …`` in the background; its server is found, and all of it ends with the test."""

    def __init__(self, folder: Path, environment: dict[str, str], *args: str | Path) -> None:
        self.out, self.err = folder / "out", folder / "err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            command = [sys.executable, "-m", "planner", *map(str, args)]
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=out, stderr=err, stdin=subprocess.DEVNULL
            )
        self.seen: list[psutil.Process] = []

    def server(self) -> psutil.Process:
        """Its llama-server, as soon as there is one."""

        def found() -> psutil.Process | None:
            children = psutil.Process(self.process.pid).children() if self.process.poll() is None else []
            return next((c for c in children if c.is_running() and "-m" in c.cmdline()[1:2]), None)

        server = self.wait(found, "no server")
        self.seen.append(server)
        return server

    def wait(self, what: Callable[[], object], words: str) -> psutil.Process:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                if result := what():
                    return result  # type: ignore[return-value]
            except psutil.NoSuchProcess:
                pass
            assert self.process.poll() is None, f"{words}: it ended\n{self.err.read_text(errors='replace')}"
            time.sleep(0.02)
        raise AssertionError(f"{words}\n{self.err.read_text(errors='replace')}")

    def says(self, text: str) -> None:
        """Wait until stderr holds a text."""
        self.wait(lambda: text in self.err.read_text(errors="replace"), f"it never says {text!r}")

    def ended(self) -> int:
        """Its exit code; by then no server is left."""
        code = self.process.wait(PATIENCE_S)
        self.no_orphan()
        return code

    def no_orphan(self) -> None:
        _, alive = psutil.wait_procs(self.seen, timeout=10)
        assert not alive, f"still there: {alive}"

    def close(self) -> None:
        for process in (*self.seen, self.process):
            with suppress(psutil.NoSuchProcess, OSError):
                process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str], engine: Path) -> Iterator[Callable[..., Command]]:
    commands: list[Command] = []

    def call(name: str, model: str | Path, *args: str | Path, llama: Path = engine) -> Command:
        command = Command(tmp_path, environment, name, model, "--llama", llama, *args)
        commands.append(command)
        return command

    yield call
    for command in commands:
        command.close()


@pytest.fixture
def model(random_demo: DemoModel, tmp_path: Path) -> Path:
    """A copy of the small demo that a test may spoil."""
    return Path(shutil.copy(random_demo.path, tmp_path / "model.gguf"))


def verdict(command: Command) -> dict[str, object]:
    found: dict[str, object] = json.loads(command.out.read_text())
    return found


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_no_signal_leaves_an_orphan(start: Callable[..., Command], model: Path, name: str) -> None:
    command = start("run", model, *SHORT)
    command.says("serving at")
    server = command.server()
    assert server.is_running()
    command.process.send_signal(getattr(signal, name))
    code = command.ended()
    assert code in {"SIGKILL": (-9,)}.get(name, (0, 1))


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_signal_before_the_end_verifies_nothing(start: Callable[..., Command], model: Path, name: str) -> None:
    command = start("verify", model, *ONE, "--json")
    command.server()
    command.process.send_signal(getattr(signal, name))
    code = command.ended()
    assert code == (-9 if name == "SIGKILL" else 130)
    assert command.out.read_text() == ""


def test_it_serves_with_what_was_verified(start: Callable[..., Command], model: Path) -> None:
    import urllib.request

    command = start("run", model, *SHORT, "--json")
    command.says("serving at")
    found = verdict(command)
    url = str(found["url"])
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
    with urllib.request.urlopen(f"{url}/props", timeout=10) as answer:
        assert json.load(answer)["default_generation_settings"]["n_ctx"] > 0


def test_a_server_that_ends_while_it_serves(start: Callable[..., Command], model: Path) -> None:
    command = start("run", model, *SHORT)
    command.says("serving at")
    server = command.server()
    server.kill()
    assert command.ended() == 3
    assert "the server ended: it was ended from outside by SIGKILL" in command.err.read_text()


def test_a_result_that_cannot_be_written_does_not_end_the_server(start: Callable[..., Command], model: Path) -> None:
    folder = model.parent / "results"
    folder.mkdir()
    command = start("run", model, *SHORT, "--json", "-o", folder / "x.json")
    command.says("starting")  # after the check of the file
    folder.rmdir()
    command.says("serving at")
    server = command.server()
    assert server.is_running() and '"schema": "moeplan.verified/1"' in command.err.read_text()
    command.process.send_signal(signal.SIGINT)
    assert command.ended() == 3


def slow(engine: Path, folder: Path, lines: str) -> Path:
    """A folder with a llama-server that runs some shell lines before it becomes the real one."""
    folder = folder / "wrapped"
    folder.mkdir()
    program = folder / "llama-server"
    real = engine / "llama-server"
    program.write_text(f'#!/bin/sh\ncase "$1" in -m) {lines} ;; esac\nexec "{real}" "$@"\n')
    program.chmod(0o755)
    return folder


def test_a_key_that_a_dying_server_says_is_not_repeated(run: Run, model: Path, engine: Path, tmp_path: Path) -> None:
    wrapped = slow(engine, tmp_path, 'echo "bad key $*"; exit 1')
    done = run("verify", model, *SHORT, "--json", "--llama", wrapped, "--", "--api-key", "SECRET-KEY")
    assert done.returncode == 1 and "bad key" in done.stdout
    assert "SECRET-KEY" not in done.stdout + done.stderr


def test_killed_in_load(start: Callable[..., Command], model: Path, engine: Path, tmp_path: Path) -> None:
    command = start("verify", model, *SHORT, "--json", llama=slow(engine, tmp_path, "sleep 5"))
    command.says("starting")
    children: list[psutil.Process] = []

    def found() -> bool:
        children[:] = psutil.Process(command.process.pid).children()
        return any("sh" in child.name() or "llama-server" in child.name() for child in children)

    command.wait(found, "no server")
    command.seen += children
    children[0].kill()
    assert command.ended() == 1
    result = verdict(command)
    assert (result["verdict"], result["reason"]) == ("failed", "it was ended from outside by SIGKILL")


@pytest.mark.parametrize(("sign", "prompt"), [("prefill", "word " * 1400), ("decode", "Count.")])
def test_killed_in_an_answer(start: Callable[..., Command], model: Path, sign: str, prompt: str) -> None:
    question = tmp_prompt(model, prompt)
    options = (*SHORT, "--json", "--prompt", f"@{question}", "--answer-tokens", "3000", "--ctx", "32768")
    command = start("verify", model, *options)
    server = command.server()
    command.says("ready after")
    if sign == "decode":
        lines = len(command.err.read_text(errors="replace"))
        command.wait(lambda: len(command.err.read_text(errors="replace")) > lines + 20, "no answer")
    else:
        time.sleep(0.3)
    server.kill()
    assert command.ended() == 1
    result = verdict(command)
    assert (result["verdict"], result["reason"]) == ("failed", "it was ended from outside by SIGKILL")


def tmp_prompt(model: Path, text: str) -> Path:
    path = model.parent / "prompt.txt"
    path.write_text(text)
    return path


def test_a_taken_port(run: Run, model: Path, engine: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("verify", model, *SHORT, "--json", "--llama", engine, "--", "--port", str(port))
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"], result["reason"]) == (1, "failed", f"port {port} is taken")


def test_a_flag_that_the_build_does_not_know(run: Run, model: Path, engine: Path) -> None:
    done = run("verify", model, *SHORT, "--json", "--llama", engine, "--", "--no-such-flag")
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (1, "failed")
    assert result["reason"] == "this build does not know --no-such-flag"
    assert result["last_lines"] == ["error: invalid argument: --no-such-flag"]


def test_an_argument_that_the_plan_decides_is_a_usage_error(run: Run, model: Path, engine: Path) -> None:
    done = run("verify", model, *SHORT, "--llama", engine, "--", "-ub", "64")
    assert done.returncode == 2 and "--pin" in done.stderr


def test_a_limit_on_memory(run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path) -> None:
    """It cannot hold the cache: what there is to step back to is tried and said, and nothing is verified."""
    wrapped = slow(engine, tmp_path, "ulimit -v 800000")
    large = ("--ctx", "1048576", "--parallel", "2")
    done = run("verify", random_demo.path, *SHORT, *large, "--json", "--llama", wrapped)
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (1, "failed")
    assert "memory" in result["reason"]
    assert any("allocate" in line for line in result["last_lines"])
    assert result["steps_back"] and all("memory" in step["reason"] for step in result["steps_back"])


def within(
    shell: str, words: tuple[object, ...], environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Shell lines that limit themselves and then become this Python (``$0``) with words of ours."""
    argv = ["sh", "-c", shell, sys.executable, *map(str, words)]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("kib", [80_000, 100_000, 120_000, 170_000, 200_000, 210_000])
def test_a_limit_on_all_of_us(
    start: Callable[..., Command], model: Path, environment: dict[str, str], tmp_path: Path, engine: Path, kib: int
) -> None:
    """``ulimit -v`` over moeplan and its server: what needs more is named, wherever it hits; the rest answers."""
    shell = f'ulimit -v {kib}; exec "$0" -m planner "$@"'
    options = ("verify", model, *SHORT, "--json", "--llama", engine)
    done = within(shell, options, environment, tmp_path)
    result = json.loads(done.stdout)
    if result["verdict"] == "failed":
        assert done.returncode == 1 and "memory" in result["reason"], result
    else:
        assert kib > 80_000 and result["answer"]["predicted_n"] > 0
    left = [p for p in psutil.process_iter(["cmdline"]) if str(model) in (p.info["cmdline"] or ())]
    assert not left


def test_too_little_for_moeplan_itself(model: Path, environment: dict[str, str], engine: Path) -> None:
    shell = 'ulimit -v 40000; exec "$0" -m planner verify "$1" --fit --llama "$2"'
    done = within(shell, (model, engine), environment, model.parent)
    assert done.returncode not in (0, 2) and done.stdout == ""
    assert "emory" in done.stderr or "failed to map" in done.stderr


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A control group of our own that limits memory, v2 or v1."""
    for parent, limit in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
        folder = Path(parent) / f"moeplan-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if not (folder / limit).exists():  # no control group, or one without this controller
            folder.rmdir()
            continue
        (folder / limit).write_text(str(request.param << 20))
        yield folder
        for _ in range(50):
            with suppress(OSError):
                folder.rmdir()
                return
            time.sleep(0.1)
        return
    pytest.skip("no control group for memory can be made here")


@pytest.mark.parametrize("group", [100, 120], indirect=True)
def test_the_kernel_ends_the_server_for_memory(
    group: Path, random_demo: DemoModel, environment: dict[str, str], tmp_path: Path, engine: Path
) -> None:
    """A cache of 1.3 GB in a group of 100 or 120 MiB: SIGKILL, which is told from one of somebody else."""
    shell = f'echo $$ > {group}/cgroup.procs && exec "$0" -m planner "$@"'
    large = ("--ctx", "131072", "--ram", "8GiB", "--no-oracle", "--pin", "cache-ram-mib=0")
    options = ("verify", random_demo.path, *SHORT, *large, "--json", "--llama", engine)
    done = within(shell, options, environment, tmp_path)
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"]) == (1, "failed"), result
    assert result["reason"] == "the kernel killed it because memory ran out"
    assert result["steps_back"] and not (group / "cgroup.procs").read_text()


def test_a_slot_that_the_server_caps_is_no_failure(run: Run, random_demo: DemoModel, engine: Path) -> None:
    """A context beyond the model's training: llama-server gives a slot of 8,192, and longer prompts are refused."""
    large = ("--ctx", "131072", "--ram", "8GiB", "--max-trials", "0", "--budget", "60")
    done = run("verify", random_demo.path, *ONE, *large, "--json", "--llama", engine)
    result = json.loads(done.stdout)
    assert result["verdict"] in ("verified", "slower"), result["reason"]
    assert result["depth_tokens"] < 8192 and result["deep"]


@pytest.mark.parametrize("how", ["replaced", "cut"])
def test_a_model_file_that_changes(start: Callable[..., Command], model: Path, how: str) -> None:
    command = start("verify", model, *ONE, "--json", "--max-trials", "20", "--budget", "60")
    command.server()
    command.says("ready after")
    if how == "replaced":
        other = model.parent / "other.gguf"
        shutil.copy(model, other)
        with other.open("ab") as file:
            file.write(b"\0" * 4096)
        os.replace(other, model)
    else:
        os.truncate(model, model.stat().st_size // 2)
    assert command.ended() == 1
    result = verdict(command)
    assert result["verdict"] == "failed"
    assert result["reason"] == "the model file changed while it was being verified"
