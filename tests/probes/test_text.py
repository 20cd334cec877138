from __future__ import annotations

import pytest

from probes.text import clean, cpu_list, whole


def test_clean_leaves_one_printable_line() -> None:
    assert clean("a\x1b[31mb\r\n\tc\x00\u202e") == "a [31mb c"
    assert clean("x" * 300, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("text", "number"),
    [("42\n", 42), (" 7 ", 7), ("", None), (None, None), ("-1", None), ("4.5", None), ("٣", None), ("9" * 21, None)],
)
def test_whole(text: str | None, number: int | None) -> None:
    assert whole(text) == number


@pytest.mark.parametrize(
    ("text", "ids"),
    [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("", None), ("3-1", None), ("0-99999999", None), ("a-b", None)],
)
def test_cpu_list(text: str, ids: set[int] | None) -> None:
    assert cpu_list(text) == ids
