"""The printed command, pasted unchanged into a shell, starts llama-server, and it answers a chat request."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from planner.demo import DemoModel

Run = Callable[..., subprocess.CompletedProcess[str]]
PORT = 8080


@contextmanager
def pasted(command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A shell that runs the command; it and all it started are ended whatever happens."""
    with log.open("wb") as sink:
        process = subprocess.Popen(["sh", "-c", command], stdout=sink, stderr=sink, start_new_session=True)
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)


def ask(port: int, process: subprocess.Popen[bytes], seconds: float = 90) -> str:
    """The answer to one chat request, as soon as the server gives one."""
    question = {"messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 16, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(question).encode(),
        {"Content-Type": "application/json"},
    )
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return str(json.load(answer)["choices"][0]["message"]["content"])
        except (urllib.error.URLError, ConnectionError):  # still loading: refused, or 503
            time.sleep(0.2)
    raise AssertionError(f"no answer; the server {'ended' if process.poll() is not None else 'is silent'}")


def serve(command: str, log: Path) -> str:
    """Paste the command, ask, end the server; the answer, which is not empty."""
    if not free(PORT):
        pytest.skip(f"port {PORT}, which the command names, is taken")
    assert f"--port {PORT}" in command
    with pasted(command, log) as process:
        try:
            answer = ask(PORT, process)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log.read_text(errors='replace')[-2000:]}") from None
    assert answer
    return answer


def free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def remote_device(engine: Path) -> Iterator[str]:
    """``host:port`` of llama.cpp's RPC server, which shows the CPU as a device."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [engine / "ggml-rpc-server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while free(port) and time.monotonic() < deadline:
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(timeout=30)


@pytest.mark.parametrize("demo", ["random_demo", "talking_demo"])
def test_the_printed_command_serves(
    run: Run, engine: Path, demo: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    model: DemoModel = request.getfixturevalue(demo)
    done = run("--auto", model.path, "--llama", engine)
    assert done.returncode == 0, done.stderr
    answer = serve(done.stdout.split("\n\n")[1], tmp_path / "server.log")
    if model.talks:
        assert len([word for word in answer.split() if word.isalpha()]) >= 5


def test_a_plan_with_a_remote_device_serves(run: Run, engine: Path, random_demo: DemoModel, tmp_path: Path) -> None:
    """Placement as on a card: layers, KV cache and compute buffer go to the device."""
    with remote_device(engine) as server:
        done = run("--fit", random_demo.path, "--llama", engine, "--rpc", server)
        assert done.returncode == 0, done.stderr
        command = done.stdout.split("\n\n")[1]
        assert f"--rpc {server}" in command and "-ngl 5" in command
        serve(command, tmp_path / "server.log")
