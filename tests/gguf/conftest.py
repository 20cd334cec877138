"""GGUF files made by hand: ``Raw`` writes any bytes, right or wrong; ``stock`` is the gguf package's writer."""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
TYPE_F32, TYPE_Q8_0 = 0, 8
BLOCK = {TYPE_F32: (1, 4), TYPE_Q8_0: (32, 34)}


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


class Raw:
    """A GGUF under construction; nothing is checked."""

    def __init__(self, version: int = 3) -> None:
        self.version, self.magic = version, b"GGUF"
        self.keys: list[bytes] = []
        self.tensors: list[bytes] = []
        self.offset = 0
        self.n_keys: int | None = None
        self.n_tensors: int | None = None
        self.alignment = 32

    def key(self, name: str | bytes, kind: int, payload: bytes) -> Raw:
        self.keys.append(text(name) + struct.pack("<I", kind) + payload)
        return self

    def u32(self, name: str, value: int) -> Raw:
        return self.key(name, U32, struct.pack("<I", value))

    def string(self, name: str, value: str | bytes) -> Raw:
        return self.key(name, STRING, text(value))

    def array(self, name: str, kind: int, payload: bytes, length: int) -> Raw:
        return self.key(name, ARRAY, struct.pack("<IQ", kind, length) + payload)

    def numbers(self, name: str, *values: int) -> Raw:
        return self.array(name, U32, struct.pack(f"<{len(values)}I", *values), len(values))

    def tensor(self, name: str | bytes, shape: tuple[int, ...], kind: int = TYPE_F32, offset: int | None = None) -> Raw:
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        place = self.offset if offset is None else offset
        self.tensors.append(text(name) + dims + struct.pack("<IQ", kind, place))
        block, size = BLOCK.get(kind, (1, 1))
        n_bytes = prod(shape) // block * size
        self.offset += -(-n_bytes // self.alignment) * self.alignment
        return self

    def header(self) -> bytes:
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_keys = len(self.keys) if self.n_keys is None else self.n_keys
        start = self.magic + struct.pack("<IQQ", self.version, n_tensors, n_keys)
        return start + b"".join(self.keys) + b"".join(self.tensors)

    def data(self) -> bytes:
        head = self.header()
        return head + b"\0" * (-len(head) % self.alignment) + b"\0" * min(self.offset, 1 << 22)

    def write(self, path: Path) -> str:
        path.write_bytes(self.data())
        return str(path)


def small_moe(arch: str = "qwen3moe", n_layer: int = 2, **keys: int) -> Raw:
    """Blocks of GQA (4 heads of 16 over 2) and 4 experts, 2 used; one dense tensor of every kind."""
    raw = Raw().string("general.architecture", arch).string("general.name", "Small MoE")
    values = {
        "block_count": n_layer,
        "context_length": 4096,
        "embedding_length": 64,
        "feed_forward_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 16,
        "attention.value_length": 16,
        "expert_count": 4,
        "expert_used_count": 2,
    } | keys
    for name, value in values.items():
        raw.u32(f"{arch}.{name}", value)
    raw.tensor("token_embd.weight", (64, 100)).tensor("output_norm.weight", (64,)).tensor("output.weight", (64, 100))
    for il in range(n_layer):
        raw.tensor(f"blk.{il}.attn_q.weight", (64, 64), TYPE_Q8_0)
        raw.tensor(f"blk.{il}.ffn_gate_inp.weight", (64, 4))
        for which in ("gate", "up", "down"):
            raw.tensor(f"blk.{il}.ffn_{which}_exps.weight", (32, 64, 4) if which == "down" else (64, 32, 4), TYPE_Q8_0)
    return raw


@pytest.fixture
def raw() -> type[Raw]:
    return Raw


@pytest.fixture
def moe() -> Callable[..., Raw]:
    return small_moe


@pytest.fixture
def stock(tmp_path: Path) -> Callable[..., Path]:
    """``stock(name, arch, keys, tensors)``: the gguf package writes; keys by Python type, tensors as f32 zeros."""

    def write(name: str, arch: str, keys: dict[str, Any], tensors: dict[str, tuple[int, ...]]) -> Path:
        import gguf
        import numpy as np

        path = tmp_path / name
        writer = gguf.GGUFWriter(path, arch)
        for key, value in keys.items():
            adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            adders.get(type(value), writer.add_array)(key, value)
        for tensor, shape in tensors.items():
            writer.add_tensor(tensor, np.zeros(shape[::-1], dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


@pytest.fixture
def keys() -> Callable[..., Any]:
    """``keys(arch, {"attention.head_count": 4, …})``: metadata without a file; lists become arrays.

    Four blocks of 64, 4 heads over 2, unless given; dots in names as in the file.
    """
    from planner.gguf.hyperparams import Keys
    from planner.gguf.reader import Array

    usual = {
        "block_count": 4,
        "context_length": 4096,
        "embedding_length": 64,
        "feed_forward_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
    }

    def make(arch: str, values: dict[str, Any], without: tuple[str, ...] = ()) -> Keys:
        merged = {f"{arch}.{k}": v for k, v in (usual | values).items() if k not in without}
        metadata = {k: Array(len(v), tuple(v)) if isinstance(v, list) else v for k, v in merged.items()}
        return Keys(metadata, arch, "model.gguf")

    return make
