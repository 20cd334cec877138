"""What a link moves, by generation and width."""

from __future__ import annotations

import pytest

from planner.facts import pcie


def test_pcie() -> None:
    fast = pcie.pinned(5, 16)
    assert fast is not None and fast.value == pytest.approx(55.1e9, rel=1e-3)
    assert "PCIe 5.0 x16" in fast.method
    assert pcie.pinned(9, 16) is None
    assert pcie.pinned(4, 0) is None
