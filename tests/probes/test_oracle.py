"""llama-fit-params: its table, whatever else it may print, and the ways in which it fails."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from planner.facts.allocation import Allocation
from planner.facts.machine import Engine
from planner.units import MIB
from probes import oracle
from probes.host import LocalHost
from probes.probe import Absent, Failed, Found

posix = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in programs are shell scripts")

TABLE = "CUDA0 12376 1536 462 \nHost 5315 0 128 \n"
ROWS = (
    Allocation("CUDA0", 12376 * MIB, 1536 * MIB, 462 * MIB),
    Allocation("Host", 5315 * MIB, 0, 128 * MIB),
)


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    return LocalHost(cache_dir=str(tmp_path / "cache"))


def program(folder: Path, body: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "llama-fit-params"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "text",
    [TABLE, TABLE.replace("\n", "\r\n"), "ggml_cuda_init: found 1 device\n\n" + TABLE, "CUDA0 is free\n" + TABLE],
)
def test_table(text: str) -> None:
    assert oracle.parse(text) == Found(ROWS)


def test_devices_of_any_backend() -> None:
    found = oracle.parse("RPC0 1 2 3\nVulkan1 4 5 6\nMTL0 7 8 9\nHost 0 0 0")
    assert isinstance(found, Found)
    assert [row.device for row in found.value] == ["RPC0", "Vulkan1", "MTL0", "Host"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no table"),
        ("CUDA0 1 2 3\n", "no table"),
        ("Host 1 2 3\nCUDA0 1 2 3\n", "no table"),
        ("CUDA0 1 2 3\nCUDA0 1 2 3\nHost 1 2 3", "twice"),
        ("Host 1 2 3\nHost 1 2 3", "twice"),
        ("Host 1 2", "no table"),
        ("Host 1 2 3 4", "no table"),
        ("Host -1 2 3", "no table"),
        ("Host 1e9 2 3", "no table"),
        ("Host 1 2 99999999999", "no table"),
        ("Host \u0661 2 3", "no table"),
        ("H\x1b[31most 1 2 3", "no table"),
        ("\x00" * 1000, "no table"),
        ("".join(f"CUDA{i} 1 1 1\n" for i in range(99)) + "Host 1 1 1", "64 devices"),
    ],
)
def test_what_is_no_table(text: str, says: str) -> None:
    found = oracle.parse(text)
    assert isinstance(found, Failed) and says in found.reason and found.reason.isprintable()


@posix
def test_flags_reach_it_unchanged(host: LocalHost, tmp_path: Path) -> None:
    """A shell in between would expand them."""
    path = program(tmp_path, f'for a in "$@"; do echo "<$a>" >> \'{tmp_path}/argv\'; done; echo Host 1 2 3')
    argv = ("-m", "a b $HOME `id`.gguf", "-ot", r"blk\.1\.=CPU")
    assert oracle.ask(host, path, argv) == Found((Allocation("Host", MIB, 2 * MIB, 3 * MIB),))
    assert (tmp_path / "argv").read_text().splitlines() == [f"<{a}>" for a in (*argv, "--fit-print", "on")]


@posix
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("kill -ABRT $$", "status -6"),
        ('echo "terminate" >&2; echo "  what():  failed to load model" >&2; exit 134', "134 and said: failed to"),
        ("printf 'error: invalid \\033[31margument\\n' >&2; exit 1", "status 1 and said: error: invalid"),
        ("echo Host 1 2 3; exit 1", "status 1"),
        ("echo nonsense", "no table"),
        ("head -c 3000000 /dev/zero", "no table"),
    ],
)
def test_failures_have_a_reason(host: LocalHost, tmp_path: Path, body: str, says: str) -> None:
    found = oracle.ask(host, program(tmp_path, body), ())
    assert isinstance(found, Failed) and says in found.reason and found.reason.isprintable()


@posix
def test_it_is_not_waited_for_without_end(host: LocalHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "TIMEOUT_S", 0.3)
    start = time.monotonic()
    found = oracle.ask(host, program(tmp_path, "sleep 60"), ())
    assert time.monotonic() - start < 10
    assert found == Failed("llama-fit-params did not end within 0.3 s")


def test_a_program_that_does_not_start(host: LocalHost, tmp_path: Path) -> None:
    found = oracle.ask(host, str(tmp_path / "nothing"), ())
    assert isinstance(found, Failed) and "could not start" in found.reason


@posix
def test_it_stands_beside_the_server(host: LocalHost, tmp_path: Path) -> None:
    engine = Engine("llama.cpp", 11549, server=str(tmp_path / "llama-server"))
    assert oracle.find(host, engine) == Absent("no llama-fit-params beside llama-server")
    path = program(tmp_path, "true")
    assert oracle.find(host, engine) == Found(oracle.Program(path))


@pytest.mark.parametrize(
    "engine",
    [
        Engine("ik_llama.cpp", None, server="/opt/llama-server"),
        Engine("llama.cpp", None, server="/opt/llama-server"),
        Engine("llama.cpp", 11549),
    ],
)
def test_forks_and_unknown_builds_are_not_asked(host: LocalHost, engine: Engine) -> None:
    found = oracle.find(host, engine)
    assert isinstance(found, Absent) and "no llama.cpp of a known build" in found.reason


def test_real_engine_on_a_file_that_is_no_model(host: LocalHost, engine: Path, tmp_path: Path) -> None:
    path = engine / "llama-fit-params"
    if not path.is_file():
        pytest.skip("this llama.cpp has no llama-fit-params")
    (tmp_path / "bad.gguf").write_text("nothing of the kind")
    found = oracle.ask(host, str(path), ("-m", str(tmp_path / "bad.gguf"), "-fit", "off"))
    assert isinstance(found, Failed) and found.reason.endswith("said: failed to load model")
