"""Captures of routing: finding the programs, progress, what a failure says, and an end with us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from planner.facts.machine import Os
from probes import routing_callback, routing_imatrix
from probes.commands import Heard
from probes.host import CompletedRun
from probes.llama_find import Place
from probes.routing_callback import Job

JOB = Job("m.gguf", "t.txt", 64, 4, 8, 2, "out.gguf")


class FakeHost:
    """Files that are there, and one run that says something while it runs."""

    os, python = Os.LINUX, "python"

    def __init__(self, *files: str, said: tuple[str, ...] = (), ends: CompletedRun | None = None) -> None:
        self.files, self.said, self.ends = set(files), said, ends or CompletedRun(0)
        self.argv: tuple[str, ...] = ()

    def is_file(self, path: str) -> bool:
        return self.real_path(path) in self.files

    def real_path(self, path: str) -> str:
        parts: list[str] = []
        for part in path.split("/"):
            parts = parts[:-1] if part == ".." else [*parts, part]
        return "/".join(parts)

    def run(
        self, argv: tuple[str, ...], timeout_s: float, env: Mapping[str, str] | None = None, heard: Heard | None = None
    ) -> CompletedRun:
        if "--help" in argv:
            return CompletedRun(0, "-m, --model FILE   the model\n-fit, --fit on   fit\n")
        self.argv = argv
        for piece in self.said if heard else ():
            assert heard is not None
            heard(piece)
        return self.ends

    def run_script(
        self, script: str, arguments: tuple[str, ...], timeout_s: float, heard: Heard | None = None
    ) -> CompletedRun:
        return self.run((script, *arguments), timeout_s, None, heard)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (("/l/bin/libllama.so",), "/l/bin/libllama.so"),
        (("/l/lib/libllama.so",), "/l/lib/libllama.so"),
        (("/l/bin/libllama.dylib",), "/l/bin/libllama.dylib"),
        ((), None),
    ],
)
def test_the_library_beside_the_programs(files: tuple[str, ...], found: str | None) -> None:
    host: Any = FakeHost(*files)
    assert routing_callback.library(host, Place(server="/l/bin/llama-server")) == found


def test_the_library_of_the_package() -> None:
    host: Any = FakeHost("/site/llama_cpp/lib/libllama.so")
    assert routing_callback.library(host, Place(package="/site/llama_cpp")) == "/site/llama_cpp/lib/libllama.so"


def test_progress_comes_in_pieces() -> None:
    steps: list[tuple[int, int]] = []
    said = ('noise\n{"done": 64, "of": 1', '28}\n{"done": "out"}\n', '{"done": 128, "of": 128}\n[1, 2]\n')
    host: Any = FakeHost(said=said)
    assert routing_callback.capture(host, "lib", JOB, lambda *s: steps.append(s), 1.0) == ""
    assert steps == [(64, 128), (128, 128)]
    assert json.loads(host.argv[2])["chunk"] == 64


def test_a_failure_is_told() -> None:
    host: Any = FakeHost(ends=CompletedRun(1, "", "no context"))
    assert "no context" in routing_callback.capture(host, "lib", JOB, lambda *s: None, 1.0)


def test_imatrix_is_asked_for_the_cpu_and_heard() -> None:
    steps: list[tuple[int, int]] = []
    host: Any = FakeHost("out.gguf", said=("[1]70.1,", "[2]75.3,[3]78.0,"))
    assert routing_imatrix.capture(host, "llama-imatrix", JOB, lambda *s: steps.append(s), 1.0, 256) == ""
    assert steps == [(64, 256), (192, 256)]
    joined = " ".join(host.argv)
    assert "-ngl 0" in joined and "--chunks 4" in joined and "-fit off" in joined and "-c 64 -b 64 -ub 64" in joined


def test_imatrix_says_how_many_chunks_it_takes() -> None:
    steps: list[tuple[int, int]] = []
    said = ("compute_imatrix: computing ov", "er 3 chunks, n_ctx=64, batch_size=64, n_seq=1\n", "[1]7,[2]7,", "[3]7,")
    host: Any = FakeHost("out.gguf", said=said)
    assert routing_imatrix.capture(host, "llama-imatrix", JOB, lambda *s: steps.append(s), 1.0, 256) == ""
    assert steps == [(0, 192), (128, 192), (192, 192)]


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (
            CompletedRun(1, "", "E compute_imatrix: the data file you provided tokenizes to only 90 tokens"),
            "only 90 tokens",
        ),
        (CompletedRun(1, "", "unknown argument"), "unknown argument"),
        (CompletedRun(0, "", "done, but wrote nothing"), "wrote nothing"),
        (CompletedRun(None, problem="did not end within 1 s"), "did not end"),
    ],
)
def test_imatrix_fails_with_its_words(run: CompletedRun, words: str) -> None:
    host: Any = FakeHost(ends=run)
    assert words in routing_imatrix.capture(host, "llama-imatrix", JOB, lambda *s: None, 1.0, 256)


def running(pid: int) -> bool:
    """Whether a process runs; one that ended and waits for its status does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


CAPTURE = """
import sys
from probes import routing_imatrix
from probes.host import LocalHost
from probes.routing_callback import Job
job = Job("m.gguf", "t.txt", 64, 4, 0, 2, "out.gguf")
routing_imatrix.capture(LocalHost(), sys.argv[1], job, lambda *s: None, 60.0, 256)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing ends a command of ours that is killed outright")
def test_imatrix_ends_when_we_are_killed(tmp_path: Path) -> None:
    program, told = tmp_path / "llama-imatrix", tmp_path / "pid"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --help ] && exit 0\necho $$ > {told}.part\nmv {told}.part {told}\nexec sleep 60\n'
    )
    program.chmod(0o755)
    ours = subprocess.Popen(
        (sys.executable, "-c", CAPTURE, str(program)), env={**os.environ, "PYTHONPATH": os.getcwd()}
    )
    try:
        until = monotonic() + 20
        while not told.exists() and monotonic() < until:
            sleep(0.02)
        pid = int(told.read_text())
        assert running(pid)
        ours.kill()
        assert ours.wait() == -signal.SIGKILL
        until = monotonic() + 5
        while running(pid) and monotonic() < until:
            sleep(0.02)
        assert not running(pid)
    finally:
        ours.kill()
        ours.wait()
