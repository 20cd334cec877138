"""One list of GPUs out of what drivers report and what the engine lists."""

from __future__ import annotations

from planner.facts.machine import Backend, Gpu
from probes.gpu import DriverGpu
from probes.llama_devices import Listed

_ID = {Backend.CUDA: "CUDA", Backend.ROCM: "ROCm", Backend.METAL: "MTL"}


def gpus(drivers: tuple[DriverGpu, ...], listed: tuple[Listed, ...], ram_bytes: int | None) -> tuple[Gpu, ...]:
    """Devices in llama.cpp's naming and order.

    The engine's list decides which devices there are and how they are called; a driver's figures replace the
    engine's for the same device. Without a list, names are those a build for the driver's backend would give.

    Args:
        ram_bytes: stands in for the size of a device that shares RAM and reports none.
    """
    if not listed:
        return _unlisted(drivers, ram_bytes)
    free = list(drivers)
    found = []
    for device in listed:
        driver = _match(device, free)
        if driver is not None:
            free.remove(driver)
        gpu = _merged(device, driver)
        if gpu is not None:
            found.append(gpu)
    return tuple(found)


def _match(device: Listed, drivers: list[DriverGpu]) -> DriverGpu | None:
    """The driver's view of a listed device: same name first, else the same size within 5 %, in driver order."""
    if device.backend is Backend.RPC:
        return None
    fits = [d for d in drivers if device.backend is Backend.VULKAN or d.backend is device.backend]
    named = [d for d in fits if d.name and _letters(d.name) in _letters(device.name)]
    sized = [
        d
        for d in named or [d for d in fits if not d.name]
        if d.total_bytes is None or d.unified or abs(d.total_bytes - device.total_bytes) <= 0.05 * d.total_bytes
    ]
    return sized[0] if sized else None


def _letters(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _merged(device: Listed, driver: DriverGpu | None) -> Gpu | None:
    """None for a device whose size nobody knows (accelerators without memory report 0)."""
    own = driver is not None and not driver.unified and driver.total_bytes is not None
    total = driver.total_bytes if driver is not None and own else device.total_bytes
    total = total or (driver.total_bytes if driver is not None else None)
    if not total:
        return None
    free = device.free_bytes if device.free_bytes is None else min(device.free_bytes, total)
    used = None if free is None else total - free
    if driver is not None and driver.used_bytes is not None and (own or free is None):
        used = min(driver.used_bytes, total)
        free = driver.free_bytes if driver.free_bytes is not None and own else total - used
    return Gpu(
        id=device.id,
        total_bytes=total,
        name=device.name or (driver.name if driver else None),
        backend=device.backend,
        driver_model=driver.driver_model if driver else None,
        unified=driver.unified if driver else False,
        used_bytes=used,
        free_bytes=free,
        memory_bps=driver.memory_bps if driver else None,
        h2d_pinned_bps=driver.h2d_pinned_bps if driver else None,
        driver=driver.driver if driver else None,
        threads=driver.threads if driver else None,
    )


def _unlisted(drivers: tuple[DriverGpu, ...], ram_bytes: int | None) -> tuple[Gpu, ...]:
    """Devices of one backend, as one build uses them: that of the first card with its own memory, else the first."""
    usable = [d for d in drivers if d.backend in _ID and (d.total_bytes or (d.unified and ram_bytes))]
    chosen = next((d.backend for d in usable if not d.unified), usable[0].backend if usable else None)
    ours = [d for d in usable if d.backend is chosen]
    return tuple(
        Gpu(
            id=f"{_ID[d.backend]}{n}",
            total_bytes=d.total_bytes or ram_bytes or 0,
            name=d.name,
            backend=d.backend,
            driver_model=d.driver_model,
            unified=d.unified,
            used_bytes=d.used_bytes,
            free_bytes=d.free_bytes,
            memory_bps=d.memory_bps,
            h2d_pinned_bps=d.h2d_pinned_bps,
            driver=d.driver,
            threads=d.threads,
        )
        for n, d in enumerate(ours)
    )
