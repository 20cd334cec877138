"""Which layers are cut out: on published layouts and on llama.cpp's own test architectures, which the engine loads."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from planner.cost.layer_blocks import blocks_of
from planner.errors import CutError
from planner.facts.layer_cut import CutPair, LayerKind, kinds_of
from planner.facts.model import AttentionKind, Model
from planner.gguf import cut_file
from planner.gguf.analyze import analyze
from planner.gguf.cut import Active, choose
from planner.gguf.cut_file import Cutter
from planner.units import GIB
from tests.builders import make_layer, make_model

EVERYTHING = 1 << 60

LAYOUTS = {  # shallow, deep where the size of the files is no limit but the wanted 3 GiB are
    "deepseek-v2-lite": (2, 6),
    "deepseek-v3": (4, 5),
    "deepseek-v4-flash": (4, 6),
    "gemma-4-26b-a4b": (6, 12),
    "glm-4.5-air": (2, 3),
    "gpt-oss-20b": (2, 4),
    "granite-4.0-h-tiny": (6, 16),
    "lfm2-8b-a1b": (3, 11),
    "llama4-maverick": (4, 8),
    "mixtral-8x7b": (1, 2),
    "nemotron-3-nano": (6, 13),
    "olmoe-1b-7b": (1, 10),
    "qwen3-30b-a3b": (1, 4),
    "qwen3-next-80b-a3b": (4, 8),
    "qwen3.6-35b-a3b-mtp": (4, 8),
}

KNOWN_BY_ITS_DEPTH = {"deepseek-v2-lite"}
"""src/models/deepseek2.cpp (b11434) takes a model of 27 blocks for the one without q_lora_rank: cuts do not load."""


def chosen(model: Model, most: int = EVERYTHING) -> CutPair:
    active = tuple(Active(b.dense_bytes, round(b.expert_bytes * b.used)) for b in blocks_of(model))
    return choose(model, active, most)


@pytest.fixture
def hollow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts of hollow layouts, themselves hollow: headers are what is looked at."""

    def extend(part: cut_file._Part, out: int, late: object) -> None:
        end = os.lseek(out, part.info.n_bytes, os.SEEK_CUR)
        os.ftruncate(out, end)

    monkeypatch.setattr(cut_file, "_check_filled", lambda parts: None)
    monkeypatch.setattr(cut_file, "_copy", extend)


def fit(engine: Path, path: Path) -> subprocess.CompletedProcess[str]:
    """llama.cpp creates the model and a context of it, without reading weights."""
    argv = [engine / "llama-fit-params", "-m", path, "--fit-print", "on", "-fit", "off", "-nr", "-c", "512"]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.usefixtures("hollow")
@pytest.mark.parametrize("name", LAYOUTS)
def test_published_layouts(name: str, zoo: Callable[[str], Path], engine: Path, tmp_path: Path) -> None:
    model = analyze(str(zoo(name)))
    pair = chosen(model)
    assert (pair.shallow, pair.deep) == LAYOUTS[name]
    kinds = kinds_of(model)
    assert sum(kind.n for kind in pair.kinds) == pair.n_layers
    assert {kind.kind for kind in pair.kinds} == set(kinds[pair.shallow : pair.deep])
    for depth in (pair.shallow, pair.deep):
        path = tmp_path / f"{depth}.gguf"
        Cutter(model).write(depth, str(path))
        made = analyze(str(path))
        assert (made.n_layer, made.n_layer_nextn, made.arch) == (depth, 0, model.arch)
        assert made.layers == model.layers[:depth]
        kept = tuple(t for t in model.tensors if t.layer is None or t.layer < depth)
        assert made.tensors == kept
        assert made.n_vocab == model.n_vocab
        done = fit(engine, path)
        assert (done.returncode != 0) == (name in KNOWN_BY_ITS_DEPTH), done.stderr[-400:]
        path.unlink()


def architectures(shared: Path) -> list[tuple[str, int]]:
    index = json.loads((shared / "zoo" / "archs" / "index.json").read_text())
    rows = index.items() if isinstance(index, dict) else ((row["name"], row) for row in index)
    return [(name, row["file_bytes"] if isinstance(row, dict) else row) for name, row in rows]


def test_test_architectures_of_llama_cpp_run(shared: Path, engine: Path, tmp_path: Path) -> None:
    """Filled with small numbers, cut, and run by llama-bench: at least eight architectures."""
    ran = set()
    for name, n_bytes in architectures(shared):
        head = lzma.decompress((shared / "zoo" / "archs" / f"{name}.head.xz").read_bytes())
        path, out = tmp_path / "whole.gguf", tmp_path / "cut.gguf"
        path.write_bytes(head + b"\x11" * (n_bytes - len(head)))
        model = analyze(str(path))
        try:
            pair = chosen(model)
        except CutError:
            continue  # two blocks, both of which are needed
        Cutter(model).write(pair.shallow, str(out))
        argv = [engine / "llama-bench", "-m", out, "-p", "8", "-n", "2", "-r", "1", "-t", "1", "-o", "jsonl"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
        if model.arch == "llama4":  # its fourth block alone has no positions, and the file declares a period of two
            continue
        assert done.returncode == 0, f"{name}: {done.stderr[-400:]}"
        assert len(done.stdout.splitlines()) == 2
        ran.add(model.arch)
    assert len(ran) >= 8


def test_the_difference_grows_to_drown_the_head() -> None:
    """Two thirds of the model at most, until it reads more than the head and spans 20 layers.

    Then the shallow one follows.
    """
    pair = chosen(make_model(40))
    assert (pair.shallow, pair.deep) == (7, 21)
    wide = make_model(40)
    head = next(t for t in wide.tensors if t.name == "output.weight")
    heavy = replace(head, n_bytes=1 << 30)
    model = replace(wide, tensors=tuple(heavy if t is head else t for t in wide.tensors))
    assert chosen(model).deep == 26
    assert chosen(make_model(3)).deep == 2


def test_a_pattern_is_cut_at_its_period() -> None:
    layers = tuple(make_layer(i, window=0 if i % 4 == 3 else 512) for i in range(24))
    pair = chosen(make_model(layers=layers))
    assert (pair.shallow, pair.deep) == (4, 16)


def test_kinds_are_told_apart_by_experts_and_their_types() -> None:
    kinds = kinds_of(make_model(2))
    assert kinds == (LayerKind("moe", "F16"),) * 2


@pytest.mark.parametrize(
    ("model", "most", "says"),
    [
        (make_model(1), EVERYTHING, "all of which are needed"),
        (make_model(8), 1000, "expected a cut of at most 1,000 B"),
        (make_model(layers=(make_layer(0), make_layer(1, kind=AttentionKind.RECURRENT))), EVERYTHING, "2 blocks"),
    ],
)
def test_what_cannot_be_cut_says_why(model: Model, most: int, says: str) -> None:
    with pytest.raises(CutError, match=says):
        chosen(model, most)


def test_a_large_layout_is_over_the_cap(zoo: Callable[[str], Path]) -> None:
    with pytest.raises(CutError, match=r"expected a cut of at most 16.0 GiB, found 25.4 GiB for 4 and 5 layers"):
        chosen(analyze(str(zoo("deepseek-v3.2"))), 16 * GIB)
