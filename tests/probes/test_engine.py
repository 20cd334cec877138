"""Engines: false ones written by the test, and the real llama.cpp where it is present."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from planner.errors import EngineError
from planner.facts.machine import Backend, Machine
from probes import llama_build, llama_cache, llama_embedded, llama_find
from probes.collect import collect
from probes.host import LocalHost
from probes.probe import Failed, Found, Request

posix = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in engines are shell scripts")

VERSION = 'echo "version: 0.6.0-dev (build 11549, commit abc)" >&2'
HELP = "printf -- '-m, --model FNAME\\n--n-cpu-moe N\\n--rpc SERVERS\\n'"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalHost:
    """This machine with an empty cache and no engine of its own."""
    monkeypatch.delenv("MOEPLAN_LLAMA", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return LocalHost(cache_dir=str(tmp_path / "cache"))


def script(folder: Path, version: str = VERSION, help: str = HELP, devices: str = "echo Available devices:") -> Path:
    """A llama-server that counts its runs in ``runs``."""
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / "llama-server"
    path.write_text(
        f"#!/bin/sh\necho \"$*\" >> '{folder}/runs'\n"
        f'case "$*" in *--version*) {version};; *--help*) {help};; *--list-devices*) {devices};; esac\n'
    )
    path.chmod(0o755)
    return path


def gather(host: LocalHost, llama: Path | None, rpc: tuple[str, ...] = ()) -> Machine:
    return collect(host, model_path=None, llama=None if llama is None else str(llama), rpc=rpc)


@posix
@pytest.mark.parametrize("inside", ["", "bin", "build/bin"])
def test_folder_or_program(host: LocalHost, tmp_path: Path, inside: str) -> None:
    server = script(tmp_path / "llama" / inside)
    for named in (tmp_path / "llama", server):
        engine = gather(host, named).engine
        assert engine is not None
        assert (engine.server, engine.build, engine.backends) == (str(server.resolve()), 11549, ("cpu", "rpc"))


@posix
def test_another_program_of_the_folder_stands_for_it(host: LocalHost, tmp_path: Path) -> None:
    server = script(tmp_path / "llama")
    bench = tmp_path / "llama" / "llama-bench"
    bench.write_text("")
    assert llama_find.find(host, str(bench)) == llama_find.Place(server=str(server), named="--llama")


@posix
def test_order_option_variable_path(host: LocalHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = (script(tmp_path / name) for name in "abc")
    monkeypatch.setenv("PATH", f"{c.parent}:/usr/bin:/bin")
    assert llama_find.find(host, None) == llama_find.Place(server=str(c))
    monkeypatch.setenv("MOEPLAN_LLAMA", str(b))
    assert llama_find.find(host, None) == llama_find.Place(server=str(b), named="$MOEPLAN_LLAMA")
    assert llama_find.find(host, str(a)) == llama_find.Place(server=str(a), named="--llama")


@posix
@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({"version": "echo hello; exit 1"}, "status 1 and said: hello"),
        ({"version": "printf 'a\\033[31mb\\007\\n' >&2"}, "said: a [31mb"),
        ({"version": "true"}, "said: nothing"),
        ({"version": "kill -SEGV $$"}, "status -11"),
        ({"help": "true"}, "--help lists no --model option"),
        ({"version": "echo x: error while loading shared libraries: libggml.so >&2; exit 127"}, "shared libraries"),
    ],
)
def test_named_engine_that_does_not_answer(host: LocalHost, tmp_path: Path, broken: dict[str, str], found: str) -> None:
    with pytest.raises(EngineError) as caught:
        gather(host, script(tmp_path / "llama", **broken))
    assert found in caught.value.found
    assert caught.value.found.isprintable()
    assert bool(caught.value.advice) == ("shared libraries" in found)


@posix
def test_hanging_engine(host: LocalHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_build, "TIMEOUT_S", 0.5)
    script(tmp_path / "llama", version="sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path / 'llama'}:/usr/bin:/bin")
    start = time.monotonic()
    outcome = llama_build.read(host, Request(), {})
    assert time.monotonic() - start < 10
    assert isinstance(outcome, Failed) and "did not end within 0.5 s" in outcome.reason


@posix
def test_engine_whose_device_list_fails_keeps_its_flags(host: LocalHost, tmp_path: Path) -> None:
    machine = gather(host, script(tmp_path / "llama", devices="echo no driver >&2; exit 1"))
    assert machine.engine is not None
    assert (machine.engine.flags, machine.engine.backends) == (("--model", "--n-cpu-moe", "--rpc", "-m"), ())
    report = next(r for r in machine.probes if r.name == "devices")
    assert (report.status, "no driver" in report.reason) == ("failed", True)


@posix
def test_answers_are_kept_until_the_files_change(host: LocalHost, tmp_path: Path) -> None:
    server = script(tmp_path / "llama")
    for _ in range(2):
        gather(host, server)
    runs = (tmp_path / "llama" / "runs").read_text().split()
    assert runs == ["--version", "--help", "--list-devices", "--list-devices"]
    (tmp_path / "llama" / "libllama.so").write_text("rebuilt")
    gather(host, server)
    assert (tmp_path / "llama" / "runs").read_text().split().count("--version") == 2


@posix
@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"kind": 1}', '{"kind": "x", "build": null, "flags": [1]}', "[" * 9999]
)
def test_damaged_cache_is_asked_anew(host: LocalHost, tmp_path: Path, damage: str) -> None:
    server = script(tmp_path / "llama")
    key = llama_cache.key(host, str(server), "engine")
    assert key is not None
    host.keep(key, damage)
    engine = gather(host, server).engine
    assert engine is not None and engine.build == 11549


@posix
def test_fork_has_no_upstream_build_number(host: LocalHost, tmp_path: Path) -> None:
    fork = "printf -- '-m, --model FNAME\\n-fmoe, --fused-moe\\n-rtr, --run-time-repack\\n'"
    engine = gather(host, script(tmp_path / "ik", version="echo 'version: 3980 (abc)'", help=fork)).engine
    assert engine is not None and (engine.kind, engine.build) == ("ik_llama.cpp", None)


def test_real_engine(host: LocalHost, engine: Path) -> None:
    found = gather(host, engine).engine
    assert found is not None
    assert found.kind == "llama.cpp"
    assert found.build is None or found.build > 5000
    assert {"--model", "-m", "--n-cpu-moe", "-ncmoe", "--override-tensor", "--ctx-size"} <= set(found.flags)
    assert found.backends


def test_remote_device(host: LocalHost, engine: Path, rpc_server: str) -> None:
    machine = gather(host, engine, (rpc_server,))
    remote = [gpu for gpu in machine.gpus if gpu.backend is Backend.RPC]
    assert len(remote) == 1
    assert (remote[0].id, remote[0].name) == ("RPC0", rpc_server)
    assert remote[0].used_bytes is not None and remote[0].free_bytes is not None
    assert remote[0].total_bytes == remote[0].used_bytes + remote[0].free_bytes
    assert machine.engine is not None and "rpc" in machine.engine.backends


def test_unreachable_remote_device_is_named(host: LocalHost, engine: Path) -> None:
    with pytest.raises(EngineError, match=r"--rpc 127\.0\.0\.1:1: expected a reachable server"):
        gather(host, engine, ("127.0.0.1:1",))


def test_embedded_engine(host: LocalHost) -> None:
    package = host.package("llama_cpp")
    if package is None:
        pytest.skip("llama-cpp-python is not installed (extra: embedded)")
    outcome = llama_build._embedded(host, llama_find.Place(package=package))
    assert isinstance(outcome, Found)
    assert outcome.value.engine.kind == "llama-cpp-python"
    assert outcome.value.engine.flags == ()
    assert "llama_cpp" not in sys.modules


def test_embedded_library_that_does_not_load(host: LocalHost, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libllama.so").write_text("not a library")
    library = llama_embedded.library(host, str(tmp_path))
    assert library is not None
    problem, data = llama_embedded.ask(host, library)
    assert problem.startswith("libllama does not answer") and problem.isprintable()
    assert data == {}
    assert llama_embedded.library(host, str(tmp_path / "lib")) is None


def test_found_package_is_used_last(host: LocalHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    answers: dict[str, Any] = {"llama_cpp": str(tmp_path)}
    monkeypatch.setattr(host, "package", answers.get)
    assert llama_find.find(host, None) == llama_find.Place(package=str(tmp_path))
    outcome = llama_build.read(host, Request(), {})
    assert outcome == Failed("the llama_cpp package holds no libllama")
