from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from planner.errors import EngineError
from planner.facts.machine import Backend, DriverModel, Gpu, Machine, Os, Overflow
from probes import machine_file
from probes.collect import PROBES, collect, run_probes
from probes.host import LocalHost
from probes.probe import Probe, Request
from probes.recorded import RecordedHost

MIB, GIB = 1 << 20, 1 << 30


def gather(host: Any, **more: Any) -> Machine:
    return collect(host, **{"model_path": None, "llama": None, **more})


def reports(machine: Machine) -> dict[str, str]:
    return {report.name: report.status for report in machine.probes}


def wddm(recorded: Any, fake_nvml: Any, nvml_card: Any) -> Any:
    psutil = SimpleNamespace(
        virtual_memory=lambda: SimpleNamespace(total=96 * GIB, available=88 * GIB),
        swap_memory=lambda: SimpleNamespace(total=GIB),
        cpu_count=lambda logical: 32 if logical else 24,
    )
    card = nvml_card("NVIDIA GeForce RTX 4080 SUPER", 16376, 600, CurrentDriverModel=0)
    return recorded("desktop-wddm", libraries={"psutil": psutil, "pynvml": fake_nvml(card)})


def test_wddm_desktop_ignores_the_fixed_budget(recorded: Any, fake_nvml: Any, nvml_card: Any) -> None:
    """llama.cpp says 15,061 MiB are free; NVML knows that the desktop holds 600 MiB of 16,376."""
    machine = gather(wddm(recorded, fake_nvml, nvml_card))
    assert machine.os is Os.WINDOWS
    assert machine.ram.overflow is Overflow.SWAP
    (gpu,) = machine.gpus
    assert (gpu.id, gpu.total_bytes, gpu.used_bytes) == ("CUDA0", 16376 * MIB, 600 * MIB)
    assert gpu.driver_model is DriverModel.WDDM
    assert machine.engine is not None
    assert (machine.engine.build, machine.engine.backends) == (11549, ("cuda",))
    assert "--n-cpu-moe" in machine.engine.flags


def test_second_run_asks_the_engine_nothing(recorded: Any, fake_nvml: Any, nvml_card: Any) -> None:
    host = wddm(recorded, fake_nvml, nvml_card)
    first = gather(host)
    host._runs.clear()
    second = gather(host)
    assert (second.gpus, second.engine) == (first.gpus, first.engine)


def test_apu(recorded: Any) -> None:
    machine = gather(recorded("apu"))
    (gpu,) = machine.gpus
    assert (gpu.id, gpu.unified, gpu.total_bytes) == ("Vulkan0", True, 62974 * MIB)
    assert (gpu.used_bytes, machine.ram.overflow) == ((62974 - 62782) * MIB, Overflow.COMPRESS)
    assert machine.engine is not None and machine.engine.build == 8123


def test_mac(recorded: Any) -> None:
    machine = gather(recorded("mac"))
    assert (machine.os, machine.ram.total_bytes, machine.ram.overflow) == (Os.MACOS, 128 * GIB, Overflow.COMPRESS)
    assert machine.ram.available_bytes == 4_500_000 * 16384
    assert machine.gpus == (Gpu("MTL0", 96 * GIB, "Apple M3 Max", Backend.METAL, DriverModel.METAL, unified=True),)


def test_containers(recorded: Any) -> None:
    v2, v1 = gather(recorded("container-v2")), gather(recorded("container-v1"))
    assert (v2.ram.total_bytes, v2.ram.overflow, v2.cpu.physical_cores) == (16 * GIB, Overflow.KILL, 6)
    assert (v1.ram.total_bytes, v1.ram.overflow, v1.cpu.physical_cores) == (8 * GIB, Overflow.KILL, 2)
    assert v1.ram.available_bytes == 8 * GIB - 1_000_000_000


@pytest.mark.parametrize("name", ["cloud-vm", "apu", "mac", "container-v1", "container-v2", "hybrid"])
def test_every_recorded_machine_survives_its_file(recorded: Any, name: str) -> None:
    part = SimpleNamespace(mountpoint="/", fstype="apfs", device="/dev/disk3s1")
    psutil = SimpleNamespace(disk_partitions=lambda all: [part])
    machine = gather(recorded(name, libraries={"psutil": psutil}), model_path="/models/a.gguf")
    assert "failed" not in reports(machine).values()
    assert machine_file.load(machine_file.dump(machine), name) == machine


def test_one_probe_raising_stops_no_other(recorded: Any) -> None:
    def bad(*_: Any) -> Any:
        raise RuntimeError("boom\x1b[2J")

    probes = (Probe("bad", bad), *PROBES)
    machine = run_probes(recorded("hybrid"), probes, Request())
    assert machine.probes[0].status == "failed"
    assert machine.probes[0].reason == "RuntimeError: boom [2J"
    assert machine.cpu.physical_cores == 24
    assert len(machine.probes) == len(PROBES) + 1


def test_named_engine_is_never_replaced(recorded: Any) -> None:
    with pytest.raises(EngineError, match="--llama /nowhere"):
        gather(recorded("apu"), llama="/nowhere")
    with pytest.raises(EngineError, match="MOEPLAN_LLAMA"):
        gather(recorded("apu", env={"MOEPLAN_LLAMA": "/nowhere"}))


def test_broken_engine_on_path_is_reported(recorded: Any, tmp_path: Path) -> None:
    (tmp_path / "srv").write_text("")
    hang = {"argv": ["/srv", "--version"], "problem": "did not end within 15 s", "returncode": None}
    saved = {"os": "macos", "which": {"llama-server": "/srv"}, "commands": [hang]}
    (tmp_path / "host.json").write_text(json.dumps(saved))
    psutil = SimpleNamespace(virtual_memory=lambda: SimpleNamespace(total=GIB, available=GIB))
    machine = gather(RecordedHost(str(tmp_path), libraries={"psutil": psutil}))
    assert machine.engine is None
    assert reports(machine)["engine"] == "failed"
    assert "did not end within 15 s" in next(r.reason for r in machine.probes if r.name == "engine")


def test_this_machine_without_engine_is_quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MOEPLAN_LLAMA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    host = LocalHost(cache_dir=str(tmp_path))
    monkeypatch.setattr(host, "package", lambda name: None)
    if host.os is not Os.LINUX or gather(host).gpus:
        pytest.skip("the limit is for Linux without a GPU")
    best = 9.9
    for _ in range(5):
        start = time.perf_counter()
        machine = gather(host, model_path=str(tmp_path))
        best = min(best, time.perf_counter() - start)
    assert best < 0.06
    assert machine.disk is not None and machine.disk.filesystem
    assert "failed" not in reports(machine).values()
