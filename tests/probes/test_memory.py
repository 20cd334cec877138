from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from probes import memory, sysctl
from probes.memory import HostRam
from probes.probe import Failed, Found, Request

KIB = 1024


def test_meminfo() -> None:
    text = "MemTotal:  100 kB\nMemFree:  10 kB\nMemAvailable:  60 kB\nHugePages_Total:   0\nCommitLimit: x\n"
    assert memory.parse_meminfo(text) == HostRam(100 * KIB, 60 * KIB)


def test_old_kernel_counts_free_and_reclaimable_cache() -> None:
    text = "MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 30 kB\nShmem: 8 kB\nSReclaimable: 3 kB\n"
    assert memory.parse_meminfo(text).available_bytes == (10 + 5 + 30 + 3 - 8) * KIB


def test_available_is_unknown_without_any_hint() -> None:
    assert memory.parse_meminfo("MemTotal: 100 kB\n") == HostRam(100 * KIB, None)


@pytest.mark.parametrize("text", ["", "MemFree: 1 kB\n", "MemTotal: 0 kB\n", "MemTotal: 5 MB\n", "MemTotal: 5\n"])
def test_nonsense_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"/proc/meminfo"):
        memory.parse_meminfo(text)


def test_vm_stat() -> None:
    text = "Mach Virtual Memory Statistics: (page size of 16384 bytes)\nPages free:  10.\nPages inactive: 5.\n"
    assert memory.parse_vm_stat(text) == 15 * 16384
    assert memory.parse_vm_stat("") is None


def test_sysctl_keeps_colons_in_values() -> None:
    assert sysctl.parse("a.b: x: y\njunk\n") == {"a.b": "x: y"}


def test_psutil_stands_in_where_there_is_no_proc(recorded: Any) -> None:
    assert isinstance(memory.read(recorded("desktop-wddm"), Request(), {}), Failed)
    psutil = SimpleNamespace(virtual_memory=lambda: SimpleNamespace(total=7, available=5))
    host = recorded("desktop-wddm", libraries={"psutil": psutil})
    assert memory.read(host, Request(), {}) == Found(HostRam(7, 5))
