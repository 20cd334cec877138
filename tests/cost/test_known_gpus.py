"""Cards found by the names that drivers and people give them."""

from __future__ import annotations

import pytest

from planner.cost.known_amd import AMD
from planner.cost.known_gpus import key_of, known_gpu
from planner.cost.known_nvidia import NVIDIA
from planner.cost.known_shared import INTEL, SHARED
from planner.units import GIB

ROWS = (*NVIDIA, *AMD, *INTEL, *SHARED)


@pytest.mark.parametrize(
    ("name", "gib", "gbps", "tflops", "pcie"),
    [
        ("NVIDIA GeForce RTX 4090", 24, 1008, 330.3, (4, 16)),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16, 576, None, None),
        ("NVIDIA GeForce RTX 4070 Ti", 12, 504, 160.4, (4, 16)),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 16, 672, 176.4, (4, 16)),
        ("RTX4070 SUPER", 12, 504, 141.9, (4, 16)),
        ("NVIDIA GeForce RTX 3080", 10, 760, 119.0, (4, 16)),
        ("NVIDIA GeForce RTX 3080", 12, 912, 122.6, (4, 16)),
        ("3090Ti 24GB", 24, 1008, 160.0, (4, 16)),
        ("NVIDIA A100-SXM4-80GB", 80, 2039, 312.0, (4, 16)),
        ("NVIDIA A100 80GB PCIe", 80, 1935, 312.0, (4, 16)),
        ("NVIDIA A100-PCIE-40GB", 40, 1555, 312.0, (4, 16)),
        ("NVIDIA H100 80GB HBM3", 80, 3352, 989.0, (5, 16)),
        ("Tesla T4", 15, 320, 65.0, (3, 16)),
        ("Quadro RTX 6000", 24, 672, 130.5, (3, 16)),
        ("NVIDIA RTX 6000 Ada Generation", 48, 960, 364.2, (4, 16)),
        ("NVIDIA RTX A6000", 48, 768, 154.8, (4, 16)),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", 24, 960, 122.8, (4, 16)),
        ("Radeon RX 6800XT", 16, 512, 41.5, (4, 16)),
        ("Radeon 8060S Graphics (RADV GFX1151)", 96, 256, 59.4, None),
        ("Intel(R) Arc(TM) A770 Graphics", 8, 512, 131.0, (4, 16)),
        ("Intel(R) Arc(TM) B580 Graphics", 12, 456, 116.5, (4, 8)),
        ("NVIDIA GB10", 119, 273, 125.0, None),
        ("Apple M1 Max", 48, 400, 10.4, None),
        ("Apple M4 Max", 96, None, 16.2, None),
    ],
)
def test_a_name_finds_its_card(
    name: str, gib: int, gbps: float | None, tflops: float | None, pcie: tuple[int, int] | None
) -> None:
    card = known_gpu(name, gib * GIB)
    assert card is not None
    assert card.memory_bps == (None if gbps is None else pytest.approx(gbps * 1e9))
    assert card.f16_flops == (None if tflops is None else pytest.approx(tflops * 1e12))
    assert card.pcie == pcie


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "AMD Radeon Graphics",
        "NVIDIA GeForce RTX 5090 D v2",
        "NVIDIA GeForce RTX 2070 with Max-Q Design",
        "NVIDIA RTX PRO 5000 Blackwell Generation Laptop GPU",
        "NVIDIA GeForce RTX 9999",
        "Intel(R) UHD Graphics 770",
        "llvmpipe (LLVM 15.0.7, 256 bits)",
        "(" * 100_000,
        "RTX 3090 " * 10_000,
    ],
)
def test_another_card_is_not_guessed(name: str | None) -> None:
    assert known_gpu(name, 24 * GIB) is None


def test_the_tables_are_keyed_as_names_are_read() -> None:
    assert [row[0] for row in ROWS if key_of(row[0]) != row[0]] == []


def test_one_row_per_name_and_memory() -> None:
    keys = [row[:2] for row in ROWS]
    assert len(keys) == len(set(keys))
    twice = {key for key, _ in keys if [k for k, _ in keys].count(key) > 1}
    assert all(memory is not None for key, memory in keys if key in twice)


def test_figures_are_in_their_units() -> None:
    for key, _, memory, flops, pcie in ROWS:
        assert memory is None or 60 <= memory <= 8000, key
        assert flops is None or 2 <= flops <= 2500, key
        assert pcie is None or (pcie[0] in (3, 4, 5) and pcie[1] in (4, 8, 16)), key
