"""Good headers, also against the gguf package's own reader and writer."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from planner.gguf.reader import Array, Header, Skipped, read_header
from planner.gguf.source import FileSource


def read(path: str | Path) -> Header:
    return read_header(FileSource(str(path)))


def test_what_the_gguf_package_writes(stock) -> None:
    keys = {"m.a": 7, "m.b": 1.5, "m.c": "text", "m.d": True, "m.e": [1, 2, 3], "m.f": ["x", "yy"], "m.g": [0.5]}
    tensors = {"token_embd.weight": (32, 10), "blk.0.x.weight": (3, 5, 7)}
    header = read(stock("a.gguf", "m", keys, tensors))
    assert header.metadata == {
        "general.architecture": "m",
        "m.a": 7,
        "m.b": 1.5,
        "m.c": "text",
        "m.d": True,
        "m.e": Array(3, (1, 2, 3)),
        "m.f": Array(2, None),
        "m.g": Array(1, (0.5,)),
    }
    assert [(t.name, t.shape, t.type, t.n_bytes, t.offset) for t in header.tensors] == [
        ("token_embd.weight", (32, 10), "F32", 1280, 0),
        ("blk.0.x.weight", (3, 5, 7), "F32", 420, 1280),
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_versions(moe, tmp_path: Path, version: int) -> None:
    model = moe()
    model.version = version
    assert len(read(model.write(tmp_path / "m.gguf")).tensors) == 13


SCALARS = [
    (0, "B", 255), (1, "b", -1), (2, "H", 65535), (3, "h", -1), (4, "I", 1), (5, "i", -1), (6, "f", 0.5),
    (7, "?", True), (10, "Q", 1 << 63), (11, "q", -1), (12, "d", 0.1),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "letter", "value"), SCALARS)
def test_scalars_and_arrays_of_every_kind(raw, tmp_path: Path, kind: int, letter: str, value: float) -> None:
    one, two = struct.pack("<" + letter, value), struct.pack(f"<2{letter}", value, value)
    header = read(raw().key("a", kind, one).array("b", kind, two, 2).write(tmp_path / "m.gguf"))
    assert header.metadata == {"a": value, "b": Array(2, (value, value))}
    assert type(header.metadata["a"]) is type(value)


def test_what_is_large_is_passed_over(raw, tmp_path: Path) -> None:
    model = raw().string("long", "x" * 65537).string("short", "x" * 65536)
    model.array("many", 4, bytes(4 * 4097), 4097).array("few", 4, bytes(4 * 4096), 4096).array("no", 4, b"", 0)
    metadata = read(model.u32("last", 1).write(tmp_path / "m.gguf")).metadata
    assert metadata["long"] == Skipped()
    assert metadata["short"] == "x" * 65536
    assert metadata["many"] == Array(4097, None)
    assert metadata["few"] == Array(4096, (0,) * 4096)
    assert metadata["no"] == Array(0, ())
    assert metadata["last"] == 1


def test_alignment_of_the_file_is_kept(raw, tmp_path: Path) -> None:
    model = raw()
    model.alignment = 256
    model.u32("general.alignment", 256).tensor("a", (1,)).tensor("b", (100,))
    assert [t.offset for t in read(model.write(tmp_path / "m.gguf")).tensors] == [0, 256]


def test_last_tensor_needs_no_padding(raw, tmp_path: Path) -> None:
    model = raw().tensor("a", (1,))
    data = model.data()
    path = tmp_path / "m.gguf"
    path.write_bytes(data[: len(data) - 28])
    assert read(path).tensors[0].n_bytes == 4


def test_vocabularies_cost_little(raw, tmp_path: Path) -> None:
    from time import perf_counter

    words = b"".join(struct.pack("<Q", 6) + b"%06d" % i for i in range(300_000))
    path = raw().array("tokenizer.ggml.tokens", 8, words, 300_000).write(tmp_path / "m.gguf")
    best = []
    for _ in range(3):
        start = perf_counter()
        assert read(path).metadata["tokenizer.ggml.tokens"] == Array(300_000, None)
        best.append(perf_counter() - start)
    assert min(best) < 0.3  # 0.03 s alone on two shared cores


def test_digest_tells_headers_apart(moe, tmp_path: Path) -> None:
    first = read(moe().write(tmp_path / "a.gguf"))
    assert read(moe().write(tmp_path / "b.gguf")).digest == first.digest
    assert read(moe(block_count=3).write(tmp_path / "c.gguf")).digest != first.digest
