"""Recorded machines, and an NVML that answers what a test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probes.recorded import RecordedHost

HOSTS = Path(__file__).parent / "hosts"


class FakeNvml:
    """Cards as mappings from NVML question (``Name``, ``UUID``, …) to answer; what is missing is "not supported"."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_DRIVER_WDDM, NVML_DEVICE_MIG_ENABLE = 1, 2, 0, 1
    nvmlMemory_v2 = "v2"

    class NVMLError(Exception):
        pass

    def __init__(self, *cards: Mapping[str, Any], broken: str = "", memory_v2: bool = True) -> None:
        self.cards, self.broken, self.memory_v2, self.open = cards, broken, memory_v2, False

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.NVMLError(self.broken)
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.95"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Mapping[str, Any]:
        return self.cards[index]

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Mapping[str, Any], index: int) -> Mapping[str, Any]:
        parts: tuple[Mapping[str, Any], ...] = card.get("parts", ())
        if index >= len(parts):
            raise self.NVMLError("Not Found")
        return parts[index]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        question = name.removeprefix("nvmlDeviceGet")

        def answer(card: Mapping[str, Any], *args: Any) -> Any:
            assert self.open
            if question not in card or (args == ("v2",) and not self.memory_v2):
                raise self.NVMLError("Not Supported")
            found = card[question]
            return found[args[0]] if question == "MaxClockInfo" else found

        return answer


def card(name: str, mib: int, used: int, **more: Any) -> dict[str, Any]:
    """A card of ``mib`` MiB with ``used`` MiB taken; the driver's reserve is 300 MiB."""
    total, taken, kept = mib << 20, used << 20, 300 << 20
    memory = SimpleNamespace(total=total, used=taken, free=total - taken - kept)
    return {"Name": name, "UUID": f"GPU-{name}-{mib}", "MemoryInfo": memory, **more}


@pytest.fixture
def fake_nvml() -> type[FakeNvml]:
    return FakeNvml


@pytest.fixture
def nvml_card() -> Callable[..., dict[str, Any]]:
    return card


@pytest.fixture
def recorded() -> Callable[..., RecordedHost]:
    """``recorded(name, **keywords of RecordedHost)``."""

    def open_host(name: str, **keywords: Any) -> RecordedHost:
        return RecordedHost(str(HOSTS / name), **keywords)

    return open_host
