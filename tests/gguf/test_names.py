from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import ModelFileError
from planner.gguf.names import checked_name, checked_utf8, printable, quoted


@given(st.one_of(st.text(), st.binary()))
def test_printable_always_prints_on_one_line(value: str | bytes) -> None:
    shown = printable(value)
    assert shown.isprintable()
    assert len(shown) <= 160


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb", r"a\nb"),
        ("\u202egnp", r"\u202egnp"),
        (b"\xff\xfeok", r"\xff\xfeok"),
        ("\u2028", r"\u2028"),
        ("plain é 模型", "plain é 模型"),
    ],
)
def test_printable(value: str | bytes, shown: str) -> None:
    assert printable(value) == shown


def test_long_text_is_cut() -> None:
    assert printable("x" * 1000, 10) == "x" * 9 + "…"
    assert quoted("a") == "'a'"


@pytest.mark.parametrize("raw", [b"", b"a\x1b[0m", b"\xc3", "a\u202eb".encode(), b"a\tb"])
def test_names_that_are_refused(raw: bytes) -> None:
    with pytest.raises(ModelFileError) as caught:
        checked_name(raw, "model.gguf", "tensor name")
    assert str(caught.value).isprintable()
    assert "tensor name" in str(caught.value)


def test_names_that_pass() -> None:
    assert checked_name("blk.0.é".encode(), "model.gguf", "key") == "blk.0.é"
    assert checked_utf8(b"two\nlines", "model.gguf", "a value") == "two\nlines"
