"""``moeplan inspect --routing``."""

from __future__ import annotations

import json
from pathlib import Path
from xml.dom.minidom import parse

import numpy as np
import pytest

from planner.demo import DemoModel
from tests.cli.conftest import Run


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """64 decode tokens through the 4 layers of the random demo: two experts of its eight, one of them always."""
    ids = np.zeros((64, 4, 2), np.uint16)
    ids[..., 1] = 1 + np.arange(64 * 4).reshape(64, 4) % 7
    path = tmp_path / "trace.npz"
    np.savez(path, decode=ids)
    return path


def test_curves_in_the_terminal_and_as_svg(run: Run, random_demo: DemoModel, trace: Path, tmp_path: Path) -> None:
    done = run("inspect", random_demo.path, "--routing", trace, "-o", "curves.svg")
    assert done.returncode == 0, done.stderr
    assert "64 of decode, 2 of 8 experts each" in done.stdout
    assert "Hit rate of a pool of experts" in done.stdout
    assert "written to curves.svg" in done.stderr
    svg = parse(str(tmp_path / "curves.svg")).documentElement
    assert svg.tagName == "svg"
    assert len([p for p in svg.getElementsByTagName("path") if p.getAttribute("stroke-width") == "2"]) >= 10


def test_json(run: Run, random_demo: DemoModel, trace: Path) -> None:
    routing = json.loads(run("inspect", random_demo.path, "--routing", trace, "--json").stdout)["routing"]
    assert (routing["phase"], routing["n_tokens"]) == ("decode", 64)
    assert {curve["policy"] for curve in routing["curves"]} == {"lru", "lfu", "layer_lru", "served", "static", "layers"}
    assert routing["layers"][0]["n_selections"] == 128
    assert "routing" not in json.loads(run("inspect", random_demo.path, "--json").stdout)


def test_what_cannot_be(run: Run, random_demo: DemoModel, trace: Path, tmp_path: Path) -> None:
    assert run("inspect", random_demo.path, "-o", "x.svg").returncode == 2
    other = tmp_path / "other.npz"
    np.savez(other, decode=np.zeros((9, 7, 2), np.uint16))
    done = run("inspect", random_demo.path, "--routing", other)
    assert done.returncode == 3 and "4 layers with experts, found 7" in done.stderr and not done.stdout
    over = run("inspect", random_demo.path, "--routing", trace, "-o", trace)
    assert over.returncode == 3 and "an input of this very command" in over.stderr


def test_a_plan_with_routing(run: Run, random_demo: DemoModel, trace: Path) -> None:
    done = run("plan", random_demo.path, "--fit", "--routing", trace)
    assert done.returncode == 0, done.stderr


def test_capture_and_show(run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("A line of text that the model reads, and reads again.\n" * 10)
    done = run(
        "routing", random_demo.path, "--llama", engine, "--text", text, "--tokens", "128", "--answer-tokens", "32"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "moeplan-demo-random.routing.npz\n"
    first, what, piece, *_, whole, last = done.stderr.splitlines()
    assert " on the CPU" in first and what.startswith("routing: 128 tokens of text and 32 of answer")
    assert piece.startswith("routing: 32 of 160 tokens") and whole == "routing: 160 of 160 tokens"
    assert "--routing moeplan-demo-random.routing.npz" in last
    shown = run("inspect", random_demo.path, "--routing", "moeplan-demo-random.routing.npz")
    assert "32 of decode" in shown.stdout and str(text) in shown.stdout.replace("\n", "").replace(" ", "")


def test_a_count_announces_the_pieces_that_the_engine_takes(
    run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("A line of text that the model reads, and reads again.\n" * 10)
    done = run("routing", random_demo.path, "--llama", engine, "--text", text, "--capture", "imatrix")
    assert done.returncode == 0, done.stderr
    _, what, *_, whole, _ = done.stderr.splitlines()
    tokens = what.removeprefix("routing: ").removesuffix(" of text")
    assert whole == f"routing: {tokens.split()[0]} of {tokens}"


def test_capture_refuses(run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path) -> None:
    assert run("routing", random_demo.path, "--capture", "magic").returncode == 2
    short = tmp_path / "short.txt"
    short.write_text("x")
    done = run("routing", random_demo.path, "--llama", engine, "--text", short)
    assert done.returncode == 3 and "at least" in done.stderr and not done.stdout


def test_a_pool_of_one_size(run: Run, random_demo: DemoModel, trace: Path) -> None:
    done = run("inspect", random_demo.path, "--routing", trace, "--pool", "3MiB")
    assert done.returncode == 0, done.stderr
    assert "A pool of 3.0 MiB" in done.stdout and "--moe-cache-mib 3" in done.stdout
    assert run("inspect", random_demo.path, "--pool", "3MiB").returncode == 2
    assert run("inspect", random_demo.path, "--routing", trace, "--pool", "3").returncode == 2
    small = run("inspect", random_demo.path, "--routing", trace, "--pool", "1KiB")
    assert small.returncode == 3 and "what one token uses" in small.stderr
    other = run("inspect", random_demo.path, "--routing", trace, "--pool", "3MiB", "-o", "plan.csv")
    assert other.returncode == 2 and "qwen35moe" in other.stderr
