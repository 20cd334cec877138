"""AMD devices through the amdgpu driver's sysfs files, bytes.

Source: Documentation/gpu/amdgpu/driver-misc.rst (``mem_info_*``), kgd_pp_interface.h (``gpu_metrics``).
Compare with ``rocm-smi --showmeminfo vram gtt``.
"""

from __future__ import annotations

from typing import Final

from planner.facts import pcie
from planner.facts.machine import Backend, DriverModel, Os
from planner.facts.reading import Reading
from probes.gpu import DriverGpu
from probes.host import Host
from probes.probe import Absent, Found, Outcome, Request, Seen
from probes.text import clean, whole

_GENERATION: Final = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""GT/s of ``max_link_speed`` → PCIe generation (drivers/pci/probe.c)."""


def read(host: Host, _request: Request, _seen: Seen) -> Outcome[tuple[DriverGpu, ...]]:
    if host.os is not Os.LINUX:
        return Absent("no amdgpu sysfs on this system")
    files = host.glob("/sys/class/drm/card*/device/mem_info_vram_total")
    found = tuple(gpu for file in files if (gpu := _device(host, file.rpartition("/")[0])) is not None)
    return Found(found) if found else Absent("no amdgpu device")


def _device(host: Host, folder: str) -> DriverGpu | None:
    def number(file: str) -> int | None:
        return whole(host.read_text(f"{folder}/{file}"))

    vram, gtt = number("mem_info_vram_total"), number("mem_info_gtt_total")
    if not vram:
        return None
    unified = is_apu(host.read_text(f"{folder}/gpu_metrics"), host.read_text(f"{folder}/mem_info_vram_vendor"))
    total, used = vram, number("mem_info_vram_used")
    if unified and gtt:
        gtt_used = number("mem_info_gtt_used")
        total, used = vram + gtt, None if used is None or gtt_used is None else used + gtt_used
    name = host.read_text(f"{folder}/product_name")
    return DriverGpu(
        key=parse_slot(host.read_text(f"{folder}/uevent") or "") or folder,
        name=clean(name) or None if name else None,
        backend=Backend.ROCM,
        driver_model=DriverModel.LINUX,
        total_bytes=total,
        used_bytes=used,
        free_bytes=None if used is None else max(total - used, 0),
        unified=unified,
        h2d_pinned_bps=None if unified else _link(host, folder),
    )


def is_apu(metrics: str | None, vram_vendor: str | None) -> bool:
    """True for a processor with built-in graphics, whose "VRAM" is a part of the host's RAM.

    The third byte of ``gpu_metrics`` is the format revision: 1 for cards, 2 and 3 for APUs. Without that file
    the memory vendor tells: an APU has none of its own and the driver says ``unknown``.
    """
    if metrics is not None and len(metrics) > 3 and ord(metrics[2]) in (1, 2, 3):
        return ord(metrics[2]) != 1
    return (vram_vendor or "").strip() == "unknown"


def parse_slot(uevent: str) -> str | None:
    """``PCI_SLOT_NAME`` of a device's ``uevent``."""
    pairs = (line.partition("=") for line in uevent.splitlines())
    return next((clean(value) for name, _, value in pairs if name == "PCI_SLOT_NAME"), None)


def _link(host: Host, folder: str) -> Reading | None:
    speed = (host.read_text(f"{folder}/max_link_speed") or "").split()
    width = whole(host.read_text(f"{folder}/current_link_width"))
    generation = _GENERATION.get(speed[0]) if speed else None
    return pcie.pinned(generation, width) if generation and width else None
