"""Captures with a real llama.cpp: a callback in its libllama and its llama-imatrix count the same."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from planner.demo import DemoModel
from planner.errors import CaptureError, EngineError
from planner.facts.model import Model
from planner.facts.routing import Routing
from planner.gguf.analyze import analyze
from planner.gguf.cut_folder import PREFIX, base_folder
from planner.routing.analysis import analyse
from planner.routing.capture import Way, prepare, run
from planner.routing.selections import sequence_of
from planner.routing.session import SAMPLE
from planner.routing.shape import shape_of
from probes.host import LocalHost

TEXT = "The quick brown fox jumps over the lazy dog, and 42 other animals watch. " * 12


@pytest.fixture(scope="module")
def model(random_demo: DemoModel) -> Model:
    return analyze(random_demo.path)


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return str(path)


def captured(
    model: Model, engine: Path, way: Way, text: str, answer: int = 40
) -> tuple[Routing, list[tuple[int, int]]]:
    host, steps = LocalHost(), []
    capture = prepare(host, model, str(engine), way, text, 256, answer, 2)
    return run(host, model, capture, lambda done, of: steps.append((done, of))), steps


def folders() -> set[str]:
    """Of this process: other runs of moeplan on the machine have theirs."""
    return {name for name in os.listdir(base_folder()) if name.startswith(f"{PREFIX}{os.getpid()}-")}


@pytest.mark.parametrize("demo", ["random_demo", "talking_demo"])
def test_both_ways_count_the_same(demo: str, engine: Path, text: str, request: pytest.FixtureRequest) -> None:
    model, before = analyze(request.getfixturevalue(demo).path), folders()
    ordered, steps = captured(model, engine, Way.CALLBACK, text)
    counted, imatrix_steps = captured(model, engine, Way.IMATRIX, text)
    assert ordered.prefill is not None and counted.prefill is not None
    assert ordered.prefill.counts == counted.prefill.counts
    read = ordered.prefill.n_tokens
    assert read >= 128 and all(sum(row) == 2 * read for row in ordered.prefill.counts)
    assert counted.prefill.sequence is None and counted.decode is None
    assert steps[-1] == (read + 40, read + 40) and imatrix_steps[-1][0] == read
    assert folders() <= before
    assert ordered.fingerprint == counted.fingerprint == model.fingerprint


def test_a_callback_sees_the_order_and_decode_apart(model: Model, engine: Path, text: str) -> None:
    routing, _ = captured(model, engine, Way.CALLBACK, text)
    assert routing.decode is not None and routing.decode.n_tokens == 40
    ids = sequence_of(routing.decode, 2)
    assert ids.shape == (40, 4, 2) and bool((ids < 8).all()) and bool((ids[..., 0] != ids[..., 1]).all())
    assert len({tuple(row) for row in ids[:, 0]}) > 1
    again, _ = captured(model, engine, Way.CALLBACK, text)
    assert again == routing
    assert analyse(routing, shape_of(model).expert_bytes).phase == "decode"


def test_auto_takes_the_order(model: Model, engine: Path, text: str) -> None:
    host = LocalHost()
    assert prepare(host, model, str(engine), Way.AUTO, text, 256, 8, 2).way is Way.CALLBACK


def test_no_recording_is_made_that_cannot_be_read_again(model: Model, engine: Path, tmp_path: Path) -> None:
    """Four layers with two experts per token."""
    host, long = LocalHost(), tmp_path / "long.txt"
    long.write_bytes(b"word " * 1_300_000)
    assert prepare(host, model, str(engine), Way.CALLBACK, str(long), 6_250_000, 8, 2).job.chunk == 512
    with pytest.raises(CaptureError, match="at most 6250000 tokens"):
        prepare(host, model, str(engine), Way.CALLBACK, str(long), 6_250_001, 8, 2)
    assert prepare(host, model, str(engine), Way.IMATRIX, str(long), 6_250_001, 8, 2).way is Way.IMATRIX


def test_what_cannot_be_captured(model: Model, engine: Path, text: str, tmp_path: Path) -> None:
    host, short = LocalHost(), tmp_path / "short.txt"
    short.write_text("too short")
    with pytest.raises(CaptureError, match="at least 384 bytes"):
        prepare(host, model, str(engine), Way.AUTO, str(short), 256, 8, 2)
    with pytest.raises(CaptureError, match="nothing there"):
        prepare(host, model, str(engine), Way.AUTO, str(tmp_path / "none.txt"), 256, 8, 2)
    with pytest.raises(EngineError):
        prepare(host, model, str(tmp_path / "nowhere"), Way.AUTO, text, 256, 8, 2)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "llama-server").write_text("#!/bin/sh\n")
    for way in Way:
        with pytest.raises(CaptureError, match="beside it"):
            prepare(host, model, str(bare), way, text, 256, 8, 2)


def test_an_engine_that_fails_says_why(model: Model, engine: Path, text: str, tmp_path: Path) -> None:
    from dataclasses import replace

    host, broken = LocalHost(), tmp_path / "broken.gguf"
    broken.write_bytes(Path(model.path).read_bytes()[:100_000])
    for way in (Way.CALLBACK, Way.IMATRIX):
        capture = prepare(host, model, str(engine), way, text, 256, 8, 2)
        capture = replace(capture, job=replace(capture.job, model=str(broken)))
        before = folders()
        with pytest.raises(CaptureError):
            run(host, model, capture, lambda done, of: None)
        assert folders() <= before


def test_the_sample_is_a_text() -> None:
    words = SAMPLE.read_text(encoding="utf-8")
    assert len(words) > 4000 and "def fibonacci" in words and np.unique(list(words)).size > 60
