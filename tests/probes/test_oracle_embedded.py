"""The embedded engine asked for its memory: where it can be, and why not elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from planner.cost.confirm import comparable, compare
from planner.demo import DemoModel
from planner.facts.machine import Machine, Os
from planner.gguf.analyze import analyze
from planner.plans.settings import Settings
from probes import oracle_embedded
from probes.host import LocalHost
from probes.probe import Absent, Failed, Found

SETTINGS = comparable(Settings(n_ctx=4096, n_gpu_layers=0, n_parallel=2, type_k="q8_0", type_v="q8_0"))


class Elsewhere(LocalHost):
    """This computer under another system's name, with a package of the test's choice."""

    def __init__(self, system: Os, package: str | None) -> None:
        super().__init__()
        self._system, self._package = system, package

    @property
    def os(self) -> Os:
        return self._system

    def package(self, name: str) -> str | None:
        return self._package


def test_where_it_cannot_be_asked(tmp_path: Path) -> None:
    assert oracle_embedded.find(Elsewhere(Os.WINDOWS, None)) == Absent("the embedded engine can be asked on Linux only")
    assert oracle_embedded.find(Elsewhere(Os.LINUX, None)) == Absent("the embedded engine has no libllama")
    assert oracle_embedded.find(Elsewhere(Os.LINUX, str(tmp_path))) == Absent("the embedded engine has no libllama")


def test_a_package_that_does_not_answer(tmp_path: Path) -> None:
    """Whether llama_cpp is missing or its libllama-common is, the reason is one printable line."""
    found = oracle_embedded.ask(LocalHost(), str(tmp_path / "a" / "lib" / "libllama.so"), "m.gguf", asdict(SETTINGS))
    assert isinstance(found, Failed) and found.reason.isprintable()
    assert found.reason.startswith("the embedded engine ended with status 1 and said: ")


@pytest.mark.skipif(sys.platform != "linux", reason="the embedded engine is asked on Linux only")
def test_real_engine(random_demo: DemoModel, machine: Callable[[str], Machine]) -> None:
    host = LocalHost()
    if host.package("llama_cpp") is None:
        pytest.skip("llama-cpp-python is not installed (extra: embedded)")
    library = oracle_embedded.find(host)
    assert isinstance(library, Found) and library.value.embedded
    answer = oracle_embedded.ask(host, library.value.path, random_demo.path, asdict(SETTINGS))
    assert isinstance(answer, Found), answer
    found = compare(analyze(random_demo.path), machine("laptop-cpu"), SETTINGS, answer.value)
    assert [d.residual_bytes for d in found if d.term != "compute"] == [0, 0]
    bad = oracle_embedded.ask(host, library.value.path, __file__, asdict(SETTINGS))
    assert isinstance(bad, Failed) and "failed to load model" in bad.reason
