from __future__ import annotations

from typing import Any

import pytest

from planner.errors import MoeplanError
from planner.facts.machine import Backend, Cpu, DriverModel, Gpu, Os, Overflow
from probes import assemble
from probes.assemble_gpus import gpus
from probes.cgroup import Limits
from probes.gpu import DriverGpu
from probes.llama_devices import Listed
from probes.memory import HostRam

MIB, GIB = 1 << 20, 1 << 30


def nvidia(name: str = "NVIDIA GeForce RTX 3090", mib: int = 24576, used: int = 400, **more: Any) -> DriverGpu:
    total = mib * MIB
    return DriverGpu(
        name + str(used), name, Backend.CUDA, DriverModel.LINUX, total, used * MIB, total - used * MIB, **more
    )


def cuda(n: int, name: str = "NVIDIA GeForce RTX 3090", mib: int = 24259) -> Listed:
    return Listed(f"CUDA{n}", name, mib * MIB, (mib - 1000) * MIB)


def test_driver_figures_win_over_the_binary() -> None:
    (gpu,) = gpus((nvidia(),), (cuda(0),), None)
    assert (gpu.id, gpu.total_bytes, gpu.used_bytes) == ("CUDA0", 24576 * MIB, 400 * MIB)
    assert gpu.driver_model is DriverModel.LINUX


def test_each_driver_entry_is_used_once_and_by_name() -> None:
    small = nvidia("NVIDIA GeForce RTX 3060", 12288, 7)
    listed = (cuda(0), cuda(1, "NVIDIA GeForce RTX 3060", 12000), cuda(2))
    found = gpus((small, nvidia(used=1), nvidia(used=2)), listed, None)
    assert [gpu.used_bytes for gpu in found] == [1 * MIB, 7 * MIB, 2 * MIB]


def test_one_card_under_two_backends_keeps_the_engines_name() -> None:
    (gpu,) = gpus((nvidia(),), (Listed("Vulkan0", "NVIDIA GeForce RTX 3090", 24576 * MIB, None),), None)
    assert (gpu.id, gpu.backend, gpu.used_bytes) == ("Vulkan0", Backend.VULKAN, 400 * MIB)


def test_listed_only_devices_use_total_less_free() -> None:
    remote = Listed("RPC0", "127.0.0.1:50052", 100 * MIB, 70 * MIB)
    (gpu,) = gpus((nvidia("127.0.0.1:50052", 100),), (remote,), None)
    assert gpu == Gpu("RPC0", 100 * MIB, "127.0.0.1:50052", Backend.RPC, used_bytes=30 * MIB, free_bytes=70 * MIB)


def test_nameless_amd_card_is_matched_by_size() -> None:
    cards = tuple(
        DriverGpu(f"{n}", None, Backend.ROCM, DriverModel.LINUX, n * GIB, GIB, (n - 1) * GIB) for n in (8, 24)
    )
    (gpu,) = gpus(cards, (Listed("ROCm0", "AMD Radeon RX 7900 XTX", 24560 * MIB, 9 * MIB),), None)
    assert (gpu.total_bytes, gpu.used_bytes) == (24 * GIB, GIB)


def test_unified_device_keeps_what_its_backend_sees() -> None:
    apu = DriverGpu("a", None, Backend.ROCM, DriverModel.LINUX, 61 * GIB, GIB, 60 * GIB, unified=True)
    (gpu,) = gpus((apu,), (Listed("ROCm0", "AMD Radeon Graphics", 512 * MIB, 500 * MIB),), None)
    assert (gpu.unified, gpu.total_bytes, gpu.used_bytes) == (True, 512 * MIB, 12 * MIB)


def test_integrated_intel_shares_ram() -> None:
    driver = DriverGpu("i", "Intel", Backend.SYCL, DriverModel.LINUX, unified=True)
    listed = (Listed("Vulkan0", "Intel(R) Iris(R) Xe Graphics", GIB, GIB), Listed("BLAS", "x", 0, 0))
    (gpu,) = gpus((driver,), listed, None)
    assert (gpu.unified, gpu.total_bytes) == (True, GIB)


def test_without_an_engine_one_backend_is_named() -> None:
    apu = DriverGpu("a", None, Backend.ROCM, DriverModel.LINUX, GIB, 0, GIB, unified=True)
    assert [gpu.id for gpu in gpus((apu, nvidia(), nvidia(used=1)), (), 64 * GIB)] == ["CUDA0", "CUDA1"]
    assert [gpu.id for gpu in gpus((apu,), (), 64 * GIB)] == ["ROCm0"]
    shared = DriverGpu("g", "GB10", Backend.CUDA, DriverModel.LINUX, unified=True)
    assert gpus((shared,), (), 64 * GIB)[0].total_bytes == 64 * GIB
    assert gpus((), (), GIB) == ()


@pytest.mark.parametrize(
    ("limits", "overflow", "total", "available", "kept"),
    [
        (Limits(), Overflow.SWAP, 64, 50, Overflow.SWAP),
        (Limits(16, 9, False), Overflow.SWAP, 16, 9, Overflow.KILL),
        (Limits(16, 60, True), Overflow.SWAP, 16, 16, Overflow.SWAP),
        (Limits(128, 99, False), Overflow.SWAP, 64, 50, Overflow.SWAP),
    ],
)
def test_smaller_limit_wins(limits: Limits, overflow: Overflow, total: int, available: int, kept: Overflow) -> None:
    found = assemble.ram(HostRam(64, 50), limits, overflow)
    assert (found.total_bytes, found.available_bytes, found.overflow) == (total, available, kept)


def test_quota_caps_cores() -> None:
    capped = assemble.cpu(Cpu("x", 24, 8, 32), 1, 2.5)
    assert (capped.physical_cores, capped.performance_cores, capped.logical_cores) == (2, 2, 2)
    assert assemble.cpu(Cpu(), None, 0.5) == Cpu()


def test_unknown_memory_is_an_error() -> None:
    with pytest.raises(MoeplanError, match="host memory"):
        assemble.machine(Os.LINUX, {}, ())
