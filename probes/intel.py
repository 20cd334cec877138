"""Intel graphics in ``/sys/class/drm``: tells whether they share the host's RAM.

The kernel reports no memory figures for them; llama.cpp's own (SYCL or Vulkan) stand alone.
Source: integrated graphics are always device 00:02.0 (Intel Architecture PCI configuration map).
"""

from __future__ import annotations

from planner.facts.machine import Backend, DriverModel, Os
from probes.gpu import DriverGpu
from probes.host import Host
from probes.probe import Absent, Found, Outcome, Request, Seen


def read(host: Host, _request: Request, _seen: Seen) -> Outcome[tuple[DriverGpu, ...]]:
    if host.os is not Os.LINUX:
        return Absent("no drm sysfs on this system")
    found = []
    for file in host.glob("/sys/class/drm/card[0-9]/device/vendor"):
        if (host.read_text(file) or "").strip() == "0x8086":
            uevent = host.read_text(file.replace("/vendor", "/uevent")) or ""
            unified = "PCI_SLOT_NAME=0000:00:02.0" in uevent.splitlines()
            found.append(DriverGpu(file, "Intel", Backend.SYCL, DriverModel.LINUX, unified=unified))
    return Found(tuple(found)) if found else Absent("no Intel graphics")
