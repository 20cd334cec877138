from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest

from planner.errors import ModelFileError
from planner.gguf import cursor as module
from planner.gguf.cursor import Cursor


@dataclass
class Memory:
    data: bytes
    subject: str = "memory"

    @property
    def size(self) -> int:
        return len(self.data)

    def read_at(self, offset: int, n: int) -> bytes:
        return self.data[offset : offset + n]

    def close(self) -> None:
        pass


def strings(*values: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(v)) + v for v in values)


def test_primitives_in_order() -> None:
    cursor = Cursor(Memory(struct.pack("<IQ", 7, 1 << 40) + strings(b"abc") + b"xyz" + struct.pack("<hh", -1, 2)))
    assert cursor.u32("a") == 7
    assert cursor.u64("b") == 1 << 40
    assert cursor.string(10, "c") == b"abc"
    assert cursor.take(3, "d") == b"xyz"
    assert cursor.unpack(struct.Struct("<hh"), "e") == (-1, 2)
    assert cursor.remaining == 0


def test_long_string_is_passed_over() -> None:
    cursor = Cursor(Memory(strings(b"x" * 100, b"y")))
    assert cursor.string(99, "long") is None
    assert cursor.string(99, "short") == b"y"


@pytest.mark.parametrize("window", [8, 9, 16, 1000])
def test_strings_are_skipped_whatever_the_window(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(module, "WINDOW", window)
    values = [b"a" * (i % 23) for i in range(200)] + [b"b" * 5000, b""]
    cursor = Cursor(Memory(strings(*values) + b"end!"))
    cursor.skip_strings(len(values), "vocabulary")
    assert cursor.take(4, "end") == b"end!"


def fails(data: bytes, count: int) -> str:
    with pytest.raises(ModelFileError) as caught:
        Cursor(Memory(data)).skip_strings(count, "vocabulary")
    return str(caught.value)


def test_strings_that_do_not_fit() -> None:
    assert "before the end of the file" in fails(strings(b"a"), 1 << 60)
    assert "string that ends" in fails(strings(b"a") + struct.pack("<Q", 1 << 63) + b"x" * 8, 2)
    assert "string that ends 1 bytes" in fails(strings(b"a")[:-1], 1)
    assert "before the end of the file" in fails(strings(b"a" * 8, b"b")[:-4], 3)


def test_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STRING_CAP", 10)
    monkeypatch.setattr(module, "KEPT_CAP", 100)
    monkeypatch.setattr(module, "HEADER_CAP", 1000)
    assert "at most 10 strings" in fails(strings(*[b""] * 11), 11)
    cursor = Cursor(Memory(bytes(module.WINDOW + 2000)))
    cursor.keep(100)
    with pytest.raises(ModelFileError, match="short values"):
        cursor.keep(1)
    cursor.skip(2000, "a")
    with pytest.raises(ModelFileError, match="at most 1,000 bytes"):
        cursor.u32("b")


def test_cut_anywhere_is_told() -> None:
    data = struct.pack("<I", 1) + strings(b"abcdef")
    for n in range(len(data)):
        cursor = Cursor(Memory(data[:n]))
        with pytest.raises(ModelFileError, match="cut or damaged"):
            cursor.u32("a")
            cursor.string(100, "b")


def test_digest_covers_what_was_parsed_and_not_what_was_skipped() -> None:
    def digest(data: bytes) -> str:
        cursor = Cursor(Memory(data))
        cursor.u32("a")
        cursor.skip(4, "b")
        cursor.u32("c")
        return cursor.digest()

    assert digest(b"aaaabbbbcccc") == digest(b"aaaaXXXXcccc")
    assert digest(b"aaaabbbbcccc") != digest(b"Xaaabbbbcccc")
    assert digest(b"aaaabbbbcccc") != digest(b"aaaabbbbcccX")
