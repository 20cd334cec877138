"""NVIDIA devices through NVML, in the order and selection that a CUDA program sees.

Figures are NVML's own, in bytes. On WDDM they are the only honest ones: llama.cpp's "free" is a fixed
budget there, whatever the desktop holds. Compare with ``nvidia-smi --query-gpu=memory.total,memory.used``.
"""

from __future__ import annotations

from typing import Any, Final

from planner.facts import pcie
from planner.facts.machine import Backend, DriverModel, Os
from planner.facts.reading import Reading, Source
from probes import cuda_order
from probes.gpu import DriverGpu
from probes.host import Host
from probes.probe import Absent, Failed, Found, Outcome, Request, Seen
from probes.text import clean

THREADS_PER_CORE: Final = {
    (7, 0): 32, (7, 5): 16, (8, 0): 32, (8, 6): 12, (8, 7): 12, (8, 9): 12, (9, 0): 16, (10, 0): 16, (12, 0): 12,
}  # fmt: skip
"""Resident threads over cores of a multiprocessor, by compute capability (technical specifications in the CUDA
programming guide: 2,048, 1,024 and 1,536 threads; 64 cores up to 8.0, 128 from 8.6 on)."""

_SIGNS: Final = (
    "/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg", "/sys/module/nvidia", "/sys/module/nvgpu",
)  # fmt: skip


def read(host: Host, _request: Request, _seen: Seen) -> Outcome[tuple[DriverGpu, ...]]:
    """Linux hosts without a trace of the driver are answered without loading anything."""
    if host.os is Os.MACOS or (host.os is Os.LINUX and not any(map(host.exists, _SIGNS))):
        return Absent("no NVIDIA driver")
    nvml = host.library("pynvml")
    if nvml is None:
        return Absent("the NVIDIA management library does not load")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as e:
        return Failed(f"NVML does not start: {clean(str(e))}")
    try:
        return _devices(host, nvml)
    finally:
        nvml.nvmlShutdown()


def _devices(host: Host, nvml: Any) -> Outcome[tuple[DriverGpu, ...]]:
    cards = tuple(card(nvml, n) for n in range(int(nvml.nvmlDeviceGetCount())))
    visible = cuda_order.visible(
        cards, host.env("CUDA_VISIBLE_DEVICES"), by_bus=host.env("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    )
    if not visible:
        hidden = f"{len(cards)} hidden by CUDA_VISIBLE_DEVICES" if cards else "NVML lists no device"
        return Absent(hidden)
    kernel = host.read_text("/proc/sys/kernel/osrelease") or ""
    default = DriverModel.WDDM if "microsoft" in kernel.lower() else DriverModel.LINUX
    models = [_driver_model(nvml, card.handle) if host.os is Os.WINDOWS else default for card in visible]
    driver = _driver(nvml)
    return Found(tuple(_gpu(nvml, card, model, driver) for card, model in zip(visible, models, strict=True)))


def _driver(nvml: Any) -> str | None:
    try:
        version = nvml.nvmlSystemGetDriverVersion()
    except nvml.NVMLError:
        return None
    return clean(version.decode() if isinstance(version, bytes) else str(version)) or None


def card(nvml: Any, index: int) -> cuda_order.Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    cores, clock = ask(nvml, "NumGpuCores", handle), ask(nvml, "MaxClockInfo", handle, nvml.NVML_CLOCK_SM)
    return cuda_order.Card(
        handle=handle,
        uuid=clean(str(ask(nvml, "UUID", handle) or f"index {index}")),
        speed=float((cores or 0) * (clock or 0)),
        slices=_slices(nvml, handle),
    )


def _slices(nvml: Any, handle: Any) -> tuple[cuda_order.Card, ...]:
    """MIG devices of a card whose MIG mode is on."""
    mode = ask(nvml, "MigMode", handle)
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return ()
    found = []
    for n in range(ask(nvml, "MaxMigDeviceCount", handle) or 0):
        part = ask(nvml, "MigDeviceHandleByIndex", handle, n)
        if part is not None:
            found.append(cuda_order.Card(part, clean(str(ask(nvml, "UUID", part))), 0.0, parent=handle))
    return tuple(found)


def _gpu(nvml: Any, card: cuda_order.Card, model: DriverModel, driver: str | None) -> DriverGpu:
    """A device that reports no memory of its own shares the host's (Jetson, Grace-Blackwell desktops)."""
    whole_card = card.parent if card.parent is not None else card.handle
    memory = memory_of(nvml, card.handle)
    name = ask(nvml, "Name", card.handle)
    generation = ask(nvml, "MaxPcieLinkGeneration", whole_card)
    width = ask(nvml, "CurrPcieLinkWidth", whole_card)
    return DriverGpu(
        key=card.uuid,
        name=clean(name.decode() if isinstance(name, bytes) else str(name)) if name else None,
        backend=Backend.CUDA,
        driver_model=model,
        total_bytes=int(memory.total) if memory else None,
        used_bytes=int(memory.used) if memory else None,
        free_bytes=int(memory.free) if memory else None,
        unified=memory is None,
        memory_bps=_memory_bps(nvml, whole_card) if card.parent is None else None,
        h2d_pinned_bps=pcie.pinned(generation, width) if memory and generation and width else None,
        driver=driver,
        threads=_threads(nvml, whole_card) if card.parent is None else None,
    )


def _threads(nvml: Any, handle: Any) -> int | None:
    """CUDA cores times the threads that a multiprocessor holds per core, by compute capability."""
    cores, capability = ask(nvml, "NumGpuCores", handle), ask(nvml, "CudaComputeCapability", handle)
    per_core = THREADS_PER_CORE.get(tuple(capability)) if capability else None
    return int(cores) * per_core if cores and per_core else None


def memory_of(nvml: Any, handle: Any) -> Any | None:
    """Version 2 keeps the driver's reserve out of "used"; older drivers know version 1 only."""
    for version in ((nvml.nvmlMemory_v2,), ()):
        memory = ask(nvml, "MemoryInfo", handle, *version)
        if memory is not None and memory.total > 0:
            return memory
    return None


def _memory_bps(nvml: Any, handle: Any) -> Reading | None:
    clock = ask(nvml, "MaxClockInfo", handle, nvml.NVML_CLOCK_MEM)
    bits = ask(nvml, "MemoryBusWidth", handle)
    if not clock or not bits:
        return None
    method = f"NVML memory clock {clock} MHz, two transfers each, {bits} bit"
    return Reading(clock * 1e6 * 2 * bits / 8, Source.DERIVED, method)


def _driver_model(nvml: Any, handle: Any) -> DriverModel:
    current = ask(nvml, "CurrentDriverModel", handle)
    return DriverModel.WDDM if current is None or int(current) == nvml.NVML_DRIVER_WDDM else DriverModel.TCC


def ask(nvml: Any, what: str, *args: Any) -> Any | None:
    """``nvmlDeviceGet<what>``; None where this device or driver cannot say."""
    try:
        return getattr(nvml, f"nvmlDeviceGet{what}")(*args)
    except (nvml.NVMLError, AttributeError):
        return None
