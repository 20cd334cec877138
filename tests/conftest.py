"""Fixtures that more than one folder needs. What is not on this machine skips with its reason."""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from planner.demo import DemoModel, dense, write
from planner.facts.machine import Machine

hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

ROOT = Path(__file__).parents[1]
MACHINES = ROOT / "tests" / "probes" / "machines"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the repository."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no reference data: ../shared is not there")
    return folder


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of llama.cpp programs: ``$MOEPLAN_LLAMA``, or the CPU build of the reference data."""
    named = os.environ.get("MOEPLAN_LLAMA")
    if named:
        return Path(named) if Path(named).is_dir() else Path(named).parent
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("no llama.cpp: set MOEPLAN_LLAMA (the reference build is for Linux on x86-64)")
    shared = request.getfixturevalue("shared")
    packed = next((shared / "engines").glob("llama.cpp-*-cpu-x86_64.tar.xz"), None)
    if packed is None:
        pytest.skip("no llama.cpp: set MOEPLAN_LLAMA (../shared/engines holds no CPU build)")
    folder = tmp_path_factory.mktemp("engine")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def rpc_server(engine: Path) -> Iterator[str]:
    """A real ggml-rpc-server on a free port of this host; always ended."""
    program = engine / "ggml-rpc-server"
    if not program.is_file():
        pytest.skip("this llama.cpp has no ggml-rpc-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    null = subprocess.DEVNULL
    server = subprocess.Popen(
        [program, "-H", "127.0.0.1", "-p", str(port)], stdin=null, stdout=null, stderr=null, start_new_session=True
    )
    try:
        _wait_for(port)
        yield f"127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait_for(port: int) -> None:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("ggml-rpc-server does not listen")


@pytest.fixture(scope="session")
def zoo(shared: Path) -> Callable[[str], Path]:
    """``zoo(name)``: a file of full apparent size with the layout of a published model and no weights.

    Written once and kept in the temporary folder, a few MB of disk each. Not in the repository: a copy that
    knows no sparse files would fill a disk.
    """
    script = shared / "zoo" / "zoo.py"
    version = hashlib.sha256(script.read_bytes()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"moeplan-zoo-{version}"
    folder.mkdir(exist_ok=True)

    def layout(name: str) -> Path:
        path = folder / f"{name}.gguf"
        if not path.exists():
            part = folder / f"{name}.{os.getpid()}.part"
            command = [sys.executable, str(script), name, str(part), "--vocab", str(script.parent / "vocab")]
            subprocess.run(command, check=True, capture_output=True)
            part.rename(path)
        return path

    return layout


@pytest.fixture(scope="session")
def machine_file() -> Callable[[str], Path]:
    """``machine_file(name)``: a recorded machine, by file stem."""

    def path(name: str) -> Path:
        found = MACHINES / f"{name}.json"
        assert found.is_file(), f"{found} is not there; known: {sorted(p.stem for p in MACHINES.glob('*.json'))}"
        return found

    return path


@pytest.fixture(scope="session")
def machine(machine_file: Callable[[str], Path]) -> Callable[[str], Machine]:
    """``machine(name)``: the same as facts."""
    from probes import machine_file as reader

    return lambda name: reader.load(machine_file(name).read_text(), name)


@pytest.fixture(scope="session")
def random_demo(tmp_path_factory: pytest.TempPathFactory) -> DemoModel:
    """The 7 MB demo of random weights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense, "talking_source", lambda: None)
        return write(tmp_path_factory.mktemp("random-demo"))


@pytest.fixture(scope="session")
def talking_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoModel]:
    """The 846 MB demo that answers in words, removed after the session."""
    if dense.talking_source() is None:
        pytest.skip("no talking demo: the extra `demo` is not installed")
    model = write(tmp_path_factory.mktemp("talking-demo"))
    yield model
    Path(model.path).unlink()
