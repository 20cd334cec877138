"""A cut on disk: bytes copied, keys changed, and what is refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.errors import CutError
from planner.gguf import cut_file
from planner.gguf.analyze import analyze
from planner.gguf.cut_file import Cutter
from planner.gguf.reader import Array, read_header
from planner.gguf.source import FileSource


def filled(raw: Any, path: Path) -> str:
    """A hand-made file whose data bytes all differ from zero."""
    head = raw.header()
    padding = b"\0" * (-len(head) % raw.alignment)
    path.write_bytes(head + padding + bytes(1 + i % 250 for i in range(raw.offset)))
    return str(path)


def data_of(path: str) -> dict[str, bytes]:
    header, raw = read_header(FileSource(path)), Path(path).read_bytes()
    return {t.name: raw[header.data_start + t.offset :][: t.n_bytes] for t in header.tensors}


@pytest.mark.parametrize("inside_the_kernel", [True, False])
def test_tensors_are_the_same_bytes(
    moe: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside_the_kernel: bool
) -> None:
    if not inside_the_kernel:
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    path, out = filled(moe(n_layer=3), tmp_path / "a.gguf"), str(tmp_path / "b.gguf")
    written = Cutter(analyze(path)).write(2, out)
    assert written == os.path.getsize(out)
    before, after = data_of(path), data_of(out)
    assert set(after) == {name for name in before if not name.startswith("blk.2.")}
    assert all(after[name] == before[name] for name in after)


def test_a_kernel_that_refuses_is_no_error(
    moe: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> int:
        raise OSError(18, "cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    path, out = filled(moe(), tmp_path / "a.gguf"), str(tmp_path / "b.gguf")
    Cutter(analyze(path)).write(1, out)
    assert data_of(out)["blk.0.ffn_up_exps.weight"] == data_of(path)["blk.0.ffn_up_exps.weight"]


def test_keys_that_count_blocks_are_changed_and_others_kept(moe: Callable[..., Any], tmp_path: Path) -> None:
    raw = moe(n_layer=4, nextn_predict_layers=1, leading_dense_block_count=3, full_attention_interval=4)
    raw.numbers("qwen3moe.attention.sliding_window_pattern", 1, 1, 1, 0)
    raw.numbers("qwen3moe.swiglu_clamp_exp", 7, 8, 9)
    raw.numbers("qwen3moe.rope.dimension_sections", 11, 11, 10, 0)
    raw.numbers("tokenizer.ggml.token_type", 1, 2, 3, 4)
    raw.u32("split.count", 1).string("tokenizer.chat_template", "x" * 70_000)
    path, out = filled(raw, tmp_path / "a.gguf"), str(tmp_path / "b.gguf")
    Cutter(analyze(path)).write(2, out)
    found = read_header(FileSource(out)).metadata
    old = read_header(FileSource(path)).metadata
    assert {k: v for k, v in found.items() if old[k] != v} == {
        "qwen3moe.block_count": 2,
        "qwen3moe.nextn_predict_layers": 0,
        "qwen3moe.leading_dense_block_count": 2,
        "qwen3moe.attention.sliding_window_pattern": Array(2, (1, 1)),
        "qwen3moe.swiglu_clamp_exp": Array(2, (7, 8)),
    }
    assert set(old) - set(found) == {"split.count"}
    assert b"x" * 70_000 in Path(out).read_bytes()


def test_shards_become_one_file(moe: Callable[..., Any], raw: Any, tmp_path: Path) -> None:
    whole = moe(n_layer=2)
    n = len(whole.tensors)
    first = moe(n_layer=1).u32("split.no", 0).u32("split.count", 2).u32("split.tensors.count", n)
    first.keys = [*whole.keys, *first.keys[-3:]]
    second = raw().u32("split.no", 1).u32("split.count", 2).u32("split.tensors.count", n)
    second.tensor("blk.1.attn_q.weight", (64, 64), 8).tensor("blk.1.ffn_gate_inp.weight", (64, 4))
    for which in ("gate", "up", "down"):
        second.tensor(f"blk.1.ffn_{which}_exps.weight", (32, 64, 4) if which == "down" else (64, 32, 4), 8)
    path = filled(first, tmp_path / "m-00001-of-00002.gguf")
    other = filled(second, tmp_path / "m-00002-of-00002.gguf")
    out = str(tmp_path / "b.gguf")
    Cutter(analyze(path)).write(2, out)
    assert data_of(out) == {**data_of(path), **data_of(other)}
    assert not any(key.startswith("split.") for key in read_header(FileSource(out)).metadata)


@pytest.mark.skipif(not hasattr(os, "SEEK_HOLE") or sys.platform != "linux", reason="no SEEK_HOLE")
def test_a_hollow_file_is_refused(moe: Callable[..., Any], tmp_path: Path) -> None:
    raw = moe(embedding_length=64)
    head = raw.header()
    path = tmp_path / "a.gguf"
    path.write_bytes(head)
    os.truncate(path, len(head) + raw.offset + (1 << 20))
    with pytest.raises(CutError, match="expected weights, found a hole in the file at"):
        Cutter(analyze(str(path))).write(1, str(tmp_path / "b.gguf"))


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_what_is_no_local_file_of_its_blocks_is_refused(
    moe: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = analyze(filled(moe(), tmp_path / "a.gguf"))
    with pytest.raises(CutError, match="expected a local file"):
        Cutter(replace(model, path="https://example.org/a.gguf"))
    with pytest.raises(CutError, match="run more than once"):
        Cutter(replace(model, n_layer=4))
    with pytest.raises(CutError, match="longer than there is time"):
        Cutter(model).write(1, str(tmp_path / "b.gguf"), late=lambda: True)
    monkeypatch.setattr(cut_file, "_copy", full)
    with pytest.raises(CutError, match="No space left"):
        Cutter(model).write(1, str(tmp_path / "b.gguf"))
