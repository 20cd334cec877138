"""AMD, Apple and Intel graphics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probes import amd, apple, intel
from probes.probe import Absent, Failed, Found, Request
from probes.recorded import RecordedHost

GIB = 1 << 30


def tree(root: Path, files: dict[str, str], os: str = "linux") -> RecordedHost:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (root / "host.json").write_text(f'{{"os": "{os}"}}')
    return RecordedHost(str(root))


def test_apu_counts_carve_out_and_gtt(recorded: Any) -> None:
    (gpu,) = amd.read(recorded("apu"), Request(), {}).value
    assert gpu.unified
    assert gpu.key == "0000:c4:00.0"
    assert (gpu.total_bytes, gpu.used_bytes) == (536870912 + 65498251264, 134217728 + 67108864)
    assert gpu.h2d_pinned_bps is None


def test_discrete_card(tmp_path: Path) -> None:
    device = "sys/class/drm/card0/device/"
    host = tree(tmp_path, {
        device + "mem_info_vram_total": str(24 * GIB), device + "mem_info_vram_used": str(GIB),
        device + "mem_info_gtt_total": str(32 * GIB), device + "mem_info_vram_vendor": "samsung\n",
        device + "max_link_speed": "16.0 GT/s PCIe\n", device + "current_link_width": "8\n",
    })  # fmt: skip
    (gpu,) = amd.read(host, Request(), {}).value
    assert (gpu.unified, gpu.total_bytes, gpu.used_bytes, gpu.free_bytes) == (False, 24 * GIB, GIB, 23 * GIB)
    assert gpu.h2d_pinned_bps.value == pytest.approx(23.46e9 / 2, rel=1e-3)


@pytest.mark.parametrize(
    ("metrics", "vendor", "apu"),
    [
        ("\x78\x00\x01\x03", "unknown", False),
        ("\x80\x00\x02\x01", "samsung", True),
        ("\x80\x00\x03\x00", None, True),
        (None, "unknown\n", True),
        (None, None, False),
        ("", "hynix", False),
    ],
)
def test_is_apu(metrics: str | None, vendor: str | None, apu: bool) -> None:
    assert amd.is_apu(metrics, vendor) is apu


def test_no_amd(recorded: Any, tmp_path: Path) -> None:
    assert isinstance(amd.read(recorded("cloud-vm"), Request(), {}), Absent)
    assert isinstance(amd.read(recorded("mac"), Request(), {}), Absent)
    odd = tree(tmp_path, {"sys/class/drm/card0/device/mem_info_vram_total": "0\n"})
    assert isinstance(amd.read(odd, Request(), {}), Absent)


def test_mac_working_set(recorded: Any) -> None:
    outcome = apple.read(recorded("mac"), Request(), {})
    assert outcome.value[0].total_bytes == 96 * GIB
    assert outcome.value[0].unified
    assert "derived: 3/4 of RAM" in outcome.note


@pytest.mark.parametrize(
    ("ram", "wired", "limit"),
    [(128 * GIB, None, 96 * GIB), (24 * GIB, 0, 16 * GIB), (64 * GIB, 57344, 56 * GIB), (8 * GIB, 99999, 8 * GIB)],
)
def test_working_set(ram: int, wired: int | None, limit: int) -> None:
    assert apple.working_set(ram, wired)[0] == limit


def test_no_apple_gpu(recorded: Any, tmp_path: Path) -> None:
    assert isinstance(apple.read(recorded("cloud-vm"), Request(), {}), Absent)
    assert isinstance(apple.read(tree(tmp_path, {}, "macos"), Request(), {}), Absent)
    names = ",".join(f'"{name}"' for name in ("sysctl", "-i", *apple._NAMES))
    (tmp_path / "host.json").write_text(
        f'{{"os": "macos", "commands": [{{"argv": [{names}], "stdout": "hw.optional.arm64: 1\\n"}}]}}'
    )
    assert isinstance(apple.read(RecordedHost(str(tmp_path)), Request(), {}), Failed)


def test_intel_integrated_and_discrete(recorded: Any, tmp_path: Path) -> None:
    card = "sys/class/drm/card{}/device/"
    host = tree(tmp_path, {
        card.format(0) + "vendor": "0x8086\n", card.format(0) + "uevent": "PCI_SLOT_NAME=0000:00:02.0\n",
        card.format(1) + "vendor": "0x8086\n", card.format(1) + "uevent": "PCI_SLOT_NAME=0000:03:00.0\n",
        card.format(2) + "vendor": "0x10de\n",
    })  # fmt: skip
    outcome = intel.read(host, Request(), {})
    assert isinstance(outcome, Found)
    assert [gpu.unified for gpu in outcome.value] == [True, False]
    assert isinstance(intel.read(recorded("cloud-vm"), Request(), {}), Absent)
    assert isinstance(intel.read(recorded("mac"), Request(), {}), Absent)
