from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import ModelFileError
from planner.gguf.reader import read_header
from planner.gguf.source import FileSource
from planner.gguf.tensor_table import padded


def found(model, folder: Path) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        read_header(FileSource(model.write(folder / "m.gguf")))
    return caught.value


def test_padded() -> None:
    assert [padded(n, 32) for n in (0, 1, 32, 33)] == [0, 32, 32, 64]


@pytest.mark.parametrize(
    ("shape", "kind", "expected"),
    [
        ((), 0, "1 to 4 dimensions"),
        ((1, 1, 1, 1, 1), 0, "1 to 4 dimensions"),
        ((32, 0), 0, "no empty dimension"),
        ((1 << 62, 4), 0, "fewer than 2^63"),
        ((1 << 63,), 0, "fewer than 2^63"),
        ((1 << 62,), 27, "fewer than 2^63"),
        ((33, 4), 8, "blocks of 32"),
        ((32,), 99, "a ggml type"),
        ((32,), 4, "a ggml type"),
    ],
)
def test_impossible_tensors(raw, tmp_path: Path, shape: tuple[int, ...], kind: int, expected: str) -> None:
    model = raw().tensor("blk.0.a", shape, kind)
    model.offset = 0
    error = found(model, tmp_path)
    assert expected in error.expected
    assert "blk.0.a" in error.expected


def test_offsets_follow_each_other(raw, tmp_path: Path) -> None:
    for offset in (0, 32, 48, 96, 1 << 60):
        error = found(raw().tensor("a", (16,)).tensor("b", (16,), offset=offset), tmp_path)
        assert "data of b at offset 64" in error.expected
        assert error.found == f"offset {offset:,}"


def test_names(raw, tmp_path: Path) -> None:
    assert found(raw().tensor("a", (4,)).tensor("a", (4,)), tmp_path).found == "a twice"
    assert found(raw().tensor("a" * 64, (4,)), tmp_path).expected == "tensor names of at most 63 bytes"
    assert found(raw().tensor("", (4,)), tmp_path).found == "an empty one"
