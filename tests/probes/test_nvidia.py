from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from planner.facts.machine import DriverModel
from planner.facts.reading import Source
from probes import cuda_order, nvidia
from probes.cuda_order import Card
from probes.probe import Absent, Failed, Request

MIB = 1 << 20


def read(host: Any) -> Any:
    return nvidia.read(host, Request(), {})


def test_a_wddm_desktop(recorded: Any, fake_nvml: Any, nvml_card: Any) -> None:
    card = nvml_card(
        "NVIDIA GeForce RTX 4080 SUPER", 16376, 600, CurrentDriverModel=0, MaxPcieLinkGeneration=4,
        CurrPcieLinkWidth=16, MaxClockInfo={1: 3105, 2: 11501}, MemoryBusWidth=256, NumGpuCores=10240,
        CudaComputeCapability=(8, 9),
    )  # fmt: skip
    (gpu,) = read(recorded("desktop-wddm", libraries={"pynvml": fake_nvml(card)})).value
    assert (gpu.driver_model, gpu.driver) == (DriverModel.WDDM, "580.95")
    assert (gpu.total_bytes, gpu.used_bytes, gpu.free_bytes) == (16376 * MIB, 600 * MIB, 15476 * MIB)
    assert gpu.memory_bps.value == pytest.approx(736.1e9, rel=1e-3)
    assert gpu.h2d_pinned_bps.value == pytest.approx(23.46e9, rel=1e-3)  # measured on this very card
    assert gpu.h2d_pinned_bps.source is Source.DERIVED
    assert gpu.threads == 80 * 1536


def test_linux_and_tcc(recorded: Any, fake_nvml: Any, nvml_card: Any) -> None:
    (gpu,) = read(recorded("hybrid", libraries={"pynvml": fake_nvml(nvml_card("A", 100, 1))})).value
    assert (gpu.driver_model, gpu.unified, gpu.h2d_pinned_bps) == (DriverModel.LINUX, False, None)
    assert gpu.threads is None
    tcc = fake_nvml(nvml_card("A", 100, 1, CurrentDriverModel=1))
    assert read(recorded("desktop-wddm", libraries={"pynvml": tcc})).value[0].driver_model is DriverModel.TCC


def test_old_driver_without_memory_v2(recorded: Any, fake_nvml: Any, nvml_card: Any) -> None:
    old = fake_nvml(nvml_card("A", 100, 1), memory_v2=False)
    assert read(recorded("hybrid", libraries={"pynvml": old})).value[0].total_bytes == 100 * MIB


def test_no_memory_of_its_own_is_unified(recorded: Any, fake_nvml: Any) -> None:
    (gpu,) = read(recorded("hybrid", libraries={"pynvml": fake_nvml({"Name": "GB10", "UUID": "GPU-1"})})).value
    assert (gpu.unified, gpu.total_bytes, gpu.used_bytes) == (True, None, None)


def test_absent_and_failed(recorded: Any, fake_nvml: Any, nvml_card: Any) -> None:
    assert isinstance(read(recorded("cloud-vm")), Absent)
    assert isinstance(read(recorded("hybrid")), Absent)
    assert isinstance(read(recorded("hybrid", libraries={"pynvml": fake_nvml()})), Absent)
    broken = read(recorded("hybrid", libraries={"pynvml": fake_nvml(broken="Driver/library\x1b mismatch")}))
    assert broken == Failed("NVML does not start: Driver/library mismatch")
    hidden = {"libraries": {"pynvml": fake_nvml(nvml_card("A", 100, 1))}, "env": {"CUDA_VISIBLE_DEVICES": ""}}
    assert read(recorded("hybrid", **hidden)) == Absent("1 hidden by CUDA_VISIBLE_DEVICES")


def test_mig_slice(recorded: Any, fake_nvml: Any) -> None:
    part = {"UUID": "MIG-1", "Name": "slice", "MemoryInfo": SimpleNamespace(total=9 * MIB, used=MIB, free=8 * MIB)}
    whole = {"UUID": "GPU-1", "Name": "A100", "MigMode": (1, 1), "MaxMigDeviceCount": 7, "parts": (part,),
             "MaxPcieLinkGeneration": 4, "CurrPcieLinkWidth": 16}  # fmt: skip
    (gpu,) = read(recorded("hybrid", libraries={"pynvml": fake_nvml(whole)})).value
    assert (gpu.key, gpu.total_bytes) == ("MIG-1", 9 * MIB)
    assert gpu.h2d_pinned_bps is not None


SLOW, FAST, THIRD = Card("s", "GPU-aa1", 10.0), Card("f", "GPU-aa2", 30.0), Card("t", "GPU-bb3", 20.0)
MIG = Card("m", "GPU-cc4", 40.0, slices=(Card("p", "MIG-1", 0.0), Card("q", "MIG-2", 0.0)))


@pytest.mark.parametrize(
    ("selection", "by_bus", "order"),
    [
        (None, False, "fst"),
        (None, True, "sft"),
        ("1,0", False, "sf"),
        ("1,0", True, "fs"),
        ("GPU-bb", False, "t"),
        ("GPU-aa", False, ""),
        ("2,9,0", False, "t"),
        ("0,0", False, "f"),
        ("", False, ""),
        ("-1", False, ""),
        ("NoDevFiles", False, ""),
    ],
)
def test_cuda_order(selection: str | None, by_bus: bool, order: str) -> None:
    cards = (SLOW, FAST, THIRD)
    assert "".join(c.handle for c in cuda_order.visible(cards, selection, by_bus=by_bus)) == order


def test_cuda_order_with_mig() -> None:
    assert cuda_order.visible((MIG,), None, by_bus=False)[0].uuid == "MIG-1"
    assert cuda_order.visible((MIG, SLOW), "MIG-2", by_bus=False)[0].uuid == "MIG-2"
    assert cuda_order.visible((MIG, SLOW), None, by_bus=False) == (SLOW,)
    assert cuda_order.visible((), None, by_bus=False) == ()
