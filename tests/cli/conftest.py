"""``run(...)``: the real command in its own process, streams apart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment() -> dict[str, str]:
    """This environment without terminal width, engine and debugging."""
    return {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "MOEPLAN_LLAMA", "MOEPLAN_DEBUG")}


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
