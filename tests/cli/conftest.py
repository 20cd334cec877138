"""``run(...)``: the real command in its own process, streams apart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where measured figures are kept, shared by all tests, so that the machine is measured once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def environment(cache: Path) -> dict[str, str]:
    """This environment without terminal width, engine and debugging, and with a cache of its own."""
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "MOEPLAN_LLAMA", "MOEPLAN_DEBUG")}
    return kept | {"XDG_CACHE_HOME": str(cache)}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Run ``moeplan`` in ``tmp_path``; ``env`` is added to the environment."""

    def call(*args: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "planner", *map(str, args)]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environment | (env or {}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call
