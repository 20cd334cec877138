from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from planner.facts.machine import Overflow
from probes import swap
from probes.probe import Failed, Found, Request

HEAD = "Filename Type Size Used Priority\n"


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ("", Overflow.KILL),
        ("/dev/sda2 partition 100 0 -2\n", Overflow.SWAP),
        ("/dev/zram0 partition 100 0 100\n", Overflow.COMPRESS),
        ("/swap\\040file file 100 0 -2\n/dev/zram0 partition 100 0 100\n", Overflow.COMPRESS),
        ("/dev/zram0 partition 100 0 -3\n/swapfile file 100 0 -2\n", Overflow.SWAP),
        ("junk\n", Overflow.KILL),
    ],
)
def test_kind(rows: str, kind: Overflow) -> None:
    assert swap.parse(HEAD + rows) is kind
    assert swap.parse("") is Overflow.KILL


@pytest.mark.parametrize("priority", ["--0", "-", "x", "9" * 5000])
def test_a_priority_that_is_none(priority: str) -> None:
    assert swap.parse(f"{HEAD}/dev/sda2 partition 4 0 {priority}\n") is Overflow.SWAP


def test_windows_without_page_file(recorded: Any) -> None:
    def host(size: int) -> Any:
        memory = SimpleNamespace(swap_memory=lambda: SimpleNamespace(total=size))
        return recorded("desktop-wddm", libraries={"psutil": memory})

    assert swap.read(host(0), Request(), {}) == Found(Overflow.NONE)
    assert swap.read(host(1 << 30), Request(), {}) == Found(Overflow.SWAP)
    assert isinstance(swap.read(recorded("desktop-wddm"), Request(), {}), Failed)
