from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from planner.facts.machine import Cpu
from probes import cpu, numa
from probes.probe import Absent, Failed, Found, Request


@pytest.mark.parametrize(
    ("host", "physical", "performance", "logical"),
    [("cloud-vm", 2, 2, 2), ("hybrid", 24, 8, 32), ("apu", 16, 16, 32), ("container-v1", 8, 8, 16)],
)
def test_cores(recorded: Any, host: str, physical: int, performance: int, logical: int) -> None:
    found = cpu.read(recorded(host), Request(), {}).value
    assert (found.physical_cores, found.performance_cores, found.logical_cores) == (physical, performance, logical)


def test_mac(recorded: Any) -> None:
    found = cpu.read(recorded("mac"), Request(), {})
    assert found == Found(Cpu("Apple M3 Max", 16, 12, 16, ("neon", "dotprod", "i8mm", "fp16", "bf16")))


def test_affinity_counts_only_what_we_may_use() -> None:
    assert cpu.parse_allowed("Name: x\nCpus_allowed_list:\t0-2,5\n") == {0, 1, 2, 5}
    assert cpu.parse_allowed("") is None


def test_isa_translates_kernel_names_in_a_fixed_order() -> None:
    assert cpu.isa(["avx2", "pni", "mmx"]) == ("sse3", "avx2")
    assert cpu.isa(["asimddp", "asimd", "sve"]) == ("neon", "dotprod", "sve")


def test_empty_cpuinfo_is_unknown_not_zero() -> None:
    assert cpu.parse_blocks("") == {}
    assert cpu.parse_sysctl({}) == Cpu()


class _Arm:
    """Eight Arm CPUs without core ids: four little (capacity 400), three big, one prime."""

    capacities = (400, 400, 400, 400, 900, 900, 900, 1024)

    def read_text(self, path: str) -> str | None:
        if path == "/proc/cpuinfo":
            rows = (f"processor : {n}\nFeatures : asimd sve i8mm\n\n" for n in range(8))
            return "".join(rows)
        if path.endswith("/cpu_capacity"):
            return str(self.capacities[int(path.split("/cpu")[-2].strip("/"))])
        return None


def test_capacity_tells_big_cores_from_little_ones() -> None:
    host: Any = _Arm()
    host.os = None
    found = cpu.read(host, Request(), {}).value
    assert (found.physical_cores, found.performance_cores, found.isa) == (8, 4, ("neon", "i8mm", "sve"))


def test_windows_counts_through_psutil(recorded: Any) -> None:
    psutil = SimpleNamespace(cpu_count=lambda logical: 32 if logical else 24)
    library = SimpleNamespace(get_cpu_info=lambda: {"brand_raw": "i9\x1b", "flags": ["avx2", "avx512vnni"]})
    host = recorded("desktop-wddm", libraries={"psutil": psutil, "cpuinfo": library})
    assert cpu.read(host, Request(), {}) == Found(Cpu("i9", 24, None, 32, ("avx2", "avx512_vnni")))
    assert isinstance(cpu.read(recorded("desktop-wddm"), Request(), {}), Absent)


def test_numa(recorded: Any) -> None:
    assert numa.read(recorded("hybrid"), Request(), {}) == Found(1)
    assert isinstance(numa.read(recorded("mac"), Request(), {}), Absent)
    odd: Any = SimpleNamespace(read_text=lambda path: "nonsense")
    assert isinstance(numa.read(odd, Request(), {}), Failed)
