from __future__ import annotations

from typing import Any

import pytest

from probes import cgroup
from probes.cgroup import Limits
from probes.probe import Absent, Found, Request

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "limit"),
    [("max\n", None), ("9223372036854771712\n", None), ("1024\n", 1024), ("", None), (None, None), ("x", None)],
)
def test_limit(text: str | None, limit: int | None) -> None:
    assert cgroup.parse_limit(text) == limit


@pytest.mark.parametrize(
    ("text", "cpus"), [("250000 100000", 2.5), ("max 100000", None), ("1 0", None), ("", None), (None, None)]
)
def test_cpu_max(text: str | None, cpus: float | None) -> None:
    assert cgroup.parse_cpu_max(text) == cpus


def test_self_names_each_controller() -> None:
    text = "4:cpu,cpuacct:/a\n1:name=systemd:/s\n0::/b:c\njunk\n"
    assert cgroup.parse_self(text) == {"cpu": "/a", "cpuacct": "/a", "name=systemd": "/s", "": "/b:c"}


def test_v2_smallest_on_the_way_up_wins(recorded: Any) -> None:
    """The middle level has the smaller limit; what it holds, less droppable cache, is not available."""
    found = cgroup.read(recorded("container-v2"), Request(), {})
    assert found == Found(Limits(16 * GIB, 16 * GIB - 2_000_000_000, False, 6.5))


def test_v1_through_a_partial_mount(recorded: Any) -> None:
    found = cgroup.read(recorded("container-v1"), Request(), {})
    assert found == Found(Limits(8 * GIB, 8 * GIB - 1_000_000_000, False, 2.0))


def test_no_limit_is_absent(recorded: Any) -> None:
    assert isinstance(cgroup.read(recorded("cloud-vm"), Request(), {}), Absent)
    assert isinstance(cgroup.read(recorded("mac"), Request(), {}), Absent)
