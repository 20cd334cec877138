"""The real llama-server reads the preset of a plan: its router lists the model with the plan's own arguments."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from emit import argv
from emit.flags import parse_argv
from emit.preset import preset
from tests.builders import make_model
from tests.emit.plans import make_plan

STARTS_S = 60.0


@contextmanager
def router(program: Path, file: Path) -> Iterator[int]:
    """llama-server in router mode at a free port of this host; always ended."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    words = [str(program), "--host", "127.0.0.1", "--port", str(port), "--models-preset", str(file), "--offline"]
    process = subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=file.parent,
        env={**os.environ, "LD_LIBRARY_PATH": str(program.parent)},
    )
    try:
        yield port
    finally:
        process.kill()
        process.wait()


def models(port: int) -> list[dict[str, Any]]:
    end = time.monotonic() + STARTS_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]
                return found
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < end, "no answer from the router"
            time.sleep(0.1)


def test_the_router_reads_what_the_plan_says(engine: Path, tmp_path: Path) -> None:
    path = str(tmp_path / 'it\'s "so" [x] $HOME `id` \\ %h = ü-\U0001f600,.gguf')
    plan = make_plan(make_model(path=path))
    file = tmp_path / "models.ini"
    file.write_text(preset(plan), encoding="utf-8")
    with router(engine / "llama-server", file) as port:
        (found,) = (model for model in models(port) if model["status"].get("preset"))
    assert found["id"] == "it-s-so-x-HOME-id-h"
    given = found["status"]["args"]
    ours = {*(token for item in argv.flags(plan) for token in item.tokens)} - {"127.0.0.1", "8080"}
    parsed = parse_argv(tuple(given), plan.model, plan.machine)
    assert parsed.settings == plan.chosen.settings and parsed.model_path == path and parsed.fit is False
    assert {value for value in ours if not value.startswith("-")} <= set(given)
