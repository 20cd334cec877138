"""NVIDIA devices during a run: memory in use and load, through one NVML session."""

from __future__ import annotations

from typing import Any

from planner.facts.observed import GpuSample
from probes import cuda_order
from probes.host import Host
from probes.nvidia import ask, card, memory_of
from probes.text import whole


class Session:
    """Open until ``close``. Devices are numbered as a CUDA program sees them; one that cannot be asked says nothing."""

    def __init__(self, host: Host) -> None:
        self._nvml: Any | None = host.library("pynvml")
        self._cards: tuple[cuda_order.Card, ...] = ()
        if self._nvml is None:
            return
        try:
            self._nvml.nvmlInit()
            cards = tuple(card(self._nvml, n) for n in range(int(self._nvml.nvmlDeviceGetCount())))
        except self._nvml.NVMLError:
            self._nvml = None
            return
        by_bus = host.env("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        self._cards = cuda_order.visible(cards, host.env("CUDA_VISIBLE_DEVICES"), by_bus=by_bus)

    def sample(self, device: str) -> GpuSample:
        """Memory that nobody can have any more, the driver's reserve included as in a plan's "used before", and the
        share of the last moments with a kernel running."""
        number = whole(device.removeprefix("CUDA"))
        if self._nvml is None or number is None or number >= len(self._cards):
            return GpuSample(device)
        found = self._cards[number]
        memory, load = memory_of(self._nvml, found.handle), ask(self._nvml, "UtilizationRates", found.handle)
        used = int(memory.total - memory.free) if memory else None
        return GpuSample(device, used, None if load is None else min(max(int(load.gpu), 0), 100) / 100)

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None
