"""Every broken or hostile file ends in one clear message, at once and in little memory."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import BinaryIO

import pytest

from planner.errors import ModelFileError
from planner.gguf.analyze import analyze

ROOT = Path(__file__).parents[2]
ARRAY, U32, STRING = 9, 4, 8
NESTED = b"".join(struct.pack("<IQ", ARRAY, 1) for _ in range(3000)) + struct.pack("<IQI", U32, 1, 0)


def cut(model) -> bytes:
    return model.data()[:-500]


def big_endian(model) -> bytes:
    return b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(100)


def counts(keys: int | None = None, tensors: int | None = None) -> Callable:
    def build(model) -> bytes:
        model.n_keys, model.n_tensors = keys, tensors
        return model.data()

    return build


def version(number: int) -> Callable:
    def build(model) -> bytes:
        model.version = number
        return model.data()

    return build


def huge_string(model) -> bytes:
    return model.key("a", STRING, struct.pack("<Q", 1 << 63)).data()


def huge_key(model) -> bytes:
    model.keys.append(struct.pack("<Q", 1 << 63))
    return model.data()


def no_architecture(model) -> bytes:
    del model.keys[0]
    return model.data()


BAD: dict[str, tuple[Callable, str]] = {
    "empty": (lambda m: b"", "an empty file"),
    "one byte": (lambda m: b"G", "cut or damaged"),
    "text": (lambda m: b"version https://git-lfs.github.com/spec/v1\n", "it begins with 'GGUF'"),
    "escape codes as magic": (lambda m: b"\x1b[2J" + bytes(100), r"'\x1b[2J'"),
    "cut data": (cut, "bytes are missing"),
    "cut header": (lambda m: m.data()[:300], "cut or damaged"),
    "big endian": (big_endian, "found a big-endian one"),
    "version 0": (version(0), "found version 0"),
    "version 1": (version(1), "convert the model again"),
    "version 99": (version(99), "found version 99"),
    "2^60 keys": (counts(keys=1 << 60), "keys in this file"),
    "2^60 tensors": (counts(tensors=1 << 60), "tensors in this file"),
    "more keys than there are": (counts(keys=40), "cut or damaged"),
    "string of 2^63": (huge_string, "9,223,372,036,854,775,808 bytes for a"),
    "key of 2^63": (huge_key, "9,223,372,036,854,775,808 bytes for a key"),
    "long key": (lambda m: m.u32("k" * 2000, 1).data(), "keys of at most 1024 bytes"),
    "array of 2^60 numbers": (lambda m: m.array("a", U32, b"", 1 << 60).data(), "bytes for a at"),
    "array of 2^60 strings": (lambda m: m.array("a", STRING, b"", 1 << 60).data(), "bytes for a at"),
    "arrays nested 3,000 deep": (lambda m: m.key("a", ARRAY, NESTED).data(), "arrays inside an array"),
    "unknown value type": (lambda m: m.key("a", 13, bytes(8)).data(), "found type 13"),
    "unknown element type": (lambda m: m.array("a", 77, bytes(8), 1).data(), "found type 77"),
    "zero dimension": (lambda m: m.tensor("blk.0.a", (32, 0)).data(), "no empty dimension"),
    "overflowing dimensions": (lambda m: m.tensor("blk.0.a", (1 << 40, 1 << 40)).data(), "2^63"),
    "unknown tensor type": (lambda m: m.tensor("blk.0.a", (32,), 999).data(), "type 999, which is unknown"),
    "removed tensor type": (lambda m: m.tensor("blk.0.a", (32,), 31).data(), "removed from llama.cpp"),
    "tensor twice": (lambda m: m.tensor("output.weight", (32,)).data(), "output.weight twice"),
    "key twice": (lambda m: m.u32("qwen3moe.block_count", 3).data(), "block_count twice"),
    "tensors overlap": (lambda m: m.tensor("blk.0.a", (32,), offset=0).data(), "found offset 0"),
    "tensor beyond the file": (lambda m: m.tensor("blk.0.a", (1 << 40,)).data(), "bytes are missing"),
    "alignment 0": (lambda m: m.u32("general.alignment", 0).data(), "a power of two"),
    "alignment 24": (lambda m: m.u32("general.alignment", 24).data(), "a power of two"),
    "alignment as text": (lambda m: m.string("general.alignment", "\x1b[0m").data(), "a power of two"),
    "no architecture": (no_architecture, "general.architecture"),
    "key not UTF-8": (lambda m: m.u32(b"\xff\xfe", 1).data(), r"\xff\xfe"),
    "value not UTF-8": (lambda m: m.string("general.author", b"\xff").data(), "general.author"),
    "tensor name not UTF-8": (lambda m: m.tensor(b"blk.0.\xff", (4,)).data(), r"\xff"),
    "escape codes in a key": (lambda m: m.u32("a\x1b[31m", 1).data(), r"\x1b"),
    "escape codes in a tensor name": (lambda m: m.tensor("blk.0.\x1b[2J", (4,)).data(), r"\x1b"),
    "bidirectional controls": (lambda m: m.tensor("blk.0.\u202egnp", (4,)).data(), r"\u202e"),
    "tensor of no block": (lambda m: m.tensor("blk.99.a", (4,)).data(), "blk.99.a"),
    "one tensor per expert": (lambda m: m.tensor("blk.0.ffn_up.3.weight", (4,)).data(), "no longer loads"),
    "no tensors": (lambda m: type(m)().string("general.architecture", "llama").data(), "with tensors"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_one_message_and_no_traceback(moe, tmp_path: Path, case: str) -> None:
    build, words = BAD[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(build(moe()))
    start = perf_counter()
    with pytest.raises(ModelFileError) as caught:
        analyze(str(path))
    assert perf_counter() - start < 1
    message = str(caught.value)
    assert message.isprintable()
    assert str(path) in message
    assert words in message
    assert len(message) < 600 + len(str(path))


HPARAMS = {
    "block_count 0": ({"block_count": 0}, "1 to 512 blocks"),
    "block_count 2^32-1": ({"block_count": (1 << 32) - 1}, "1 to 512 blocks"),
    "more used than experts": ({"expert_used_count": 5}, "found 5 used"),
    "none used": ({"expert_used_count": 0}, "found 0 used"),
    "used without experts": ({"expert_count": 0}, "found 2 used"),
    "more nextn blocks than blocks": ({"nextn_predict_layers": 3}, "at most 2 nextn"),
}


@pytest.mark.parametrize("case", HPARAMS)
def test_hyperparameters_that_contradict(moe, tmp_path: Path, case: str) -> None:
    keys, words = HPARAMS[case]
    with pytest.raises(ModelFileError) as caught:
        analyze(moe(**keys).write(tmp_path / "m.gguf"))
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\x07b", "a\u202eb"])
def test_control_characters_in_the_model_name(raw, tmp_path: Path, name: str) -> None:
    model = raw().string("general.architecture", "llama").string("general.name", name).tensor("a", (4,))
    for key in ("block_count", "context_length", "embedding_length", "attention.head_count"):
        model.u32(f"llama.{key}", 4)
    with pytest.raises(ModelFileError, match="without control characters") as caught:
        analyze(model.write(tmp_path / "m.gguf"))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(("key", "value"), [("general.type", "mmproj"), ("general.type", "imatrix")])
def test_files_that_are_no_models(moe, tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(ModelFileError, match="expected a language model"):
        analyze(moe().string(key, value).write(tmp_path / "m.gguf"))


def many_keys(raw, file: BinaryIO) -> None:
    model = raw()
    for i in range(32_768):
        model.u32(f"k{i}", i)
    file.write(model.data())


def many_tensors(raw, file: BinaryIO) -> None:
    model = raw().string("general.architecture", "llama").u32("llama.block_count", 512)
    for key in ("context_length", "embedding_length", "attention.head_count"):
        model.u32(f"llama.{key}", 4)
    for i in range(32_768):
        model.tensor(f"blk.{i % 512 if i < 32_767 else 999}.attn_{i}", (4,))
    file.write(model.data())


def many_arrays(raw, file: BinaryIO) -> None:
    model = raw()
    for i in range(4000):
        model.array(f"a{i}", 0, bytes(4096), 4096)
    file.write(model.data())


def empty_strings(raw, file: BinaryIO) -> None:
    file.write(raw().array("a", STRING, b"", (1 << 21) - 1).header())


def long_strings(raw, file: BinaryIO) -> None:
    file.write(raw().array("a", STRING, b"", 70_000).header())
    for _ in range(70_000):
        file.write(struct.pack("<Q", 4000))
        file.seek(4000, os.SEEK_CUR)


CHILD = """
import sys, time
from planner.errors import ModelFileError
from planner.gguf.analyze import analyze
start = time.process_time()
try:
    analyze(sys.argv[1])
except ModelFileError as error:
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    print(time.process_time() - start, peak)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc on this system")
@pytest.mark.parametrize("build", [many_keys, many_tensors, many_arrays, empty_strings, long_strings])
def test_the_heaviest_headers_stay_small_and_fast(raw, tmp_path: Path, build: Callable) -> None:
    path = tmp_path / "m.gguf"
    with path.open("wb") as file:
        build(raw, file)
        file.truncate(1 << 38)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    seconds, peak_kib = (float(word) for word in done.stdout.split())
    assert seconds < 1
    assert peak_kib < 200 * 1024
