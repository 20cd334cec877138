"""Processor families found by name."""

from __future__ import annotations

import pytest

from planner.cost.known_cpus import known_cpu


@pytest.mark.parametrize(
    ("name", "channels", "mega_transfers", "pcie", "isa"),
    [
        ("AMD Ryzen 9 5950X 16-Core Processor", 2, 3200, 4, "avx2"),
        ("AMD Ryzen 5 PRO 4650G with Radeon Graphics", 2, 3200, 3, "avx2"),
        ("AMD Ryzen 7 7800X3D 8-Core Processor", 2, 5200, 5, "avx512f"),
        ("AMD Ryzen 9 9950X 16-Core Processor", 2, 5600, 5, "avx512f"),
        ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", 4, 8000, 4, "avx512f"),
        ("AMD Ryzen Threadripper 3970X 32-Core Processor", 4, 3200, 4, "avx2"),
        ("AMD Ryzen Threadripper PRO 5975WX 32-Cores", 8, 3200, 4, "avx2"),
        ("AMD Ryzen Threadripper PRO 7995WX 96-Cores", 8, 5200, 5, "avx512f"),
        ("AMD Ryzen Threadripper 2990WX 32-Core Processor", 4, 2933, 3, "avx2"),
        ("AMD EPYC 7551P 32-Core Processor", 8, 2666, 3, "avx2"),
        ("AMD EPYC 7763 64-Core Processor", 8, 3200, 4, "avx2"),
        ("AMD EPYC 7H12 64-Core Processor", 8, 3200, 4, "avx2"),
        ("AMD EPYC 9654 96-Core Processor", 12, 4800, 5, "avx512f"),
        ("AMD EPYC 9355 32-Core Processor", 12, 6400, 5, "avx512f"),
        ("Intel(R) Core(TM) i7-8086K CPU @ 4.00GHz", 2, 2666, 3, "avx2"),
        ("Intel(R) Core(TM) i9-10900K CPU @ 3.70GHz", 2, 2933, 3, "avx2"),
        ("Intel(R) Core(TM) i9-10900X CPU @ 3.70GHz", 4, 2933, 3, "avx512f"),
        ("11th Gen Intel(R) Core(TM) i7-11700K @ 3.60GHz", 2, 3200, 4, "avx512f"),
        ("13th Gen Intel(R) Core(TM) i5-13400F", 2, 4000, 5, "avx2"),
        ("Intel(R) Core(TM) i9-14900K", 2, 4400, 5, "avx2"),
        ("Intel(R) Core(TM) Ultra 7 265K", 2, 6400, 5, "avx2"),
        ("Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz", 6, 2666, 3, "avx512f"),
        ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", 8, 3200, 4, "avx512f"),
        ("Intel(R) Xeon(R) Platinum 8380H CPU @ 2.90GHz", 6, 3200, 3, "avx512f"),
        ("Intel(R) Xeon(R) Platinum 8480+", 8, 4800, 5, "avx512f"),
        ("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", 4, 2400, 3, "avx2"),
        ("Intel(R) Xeon(R) w9-3495X", 8, 4800, 5, "avx512f"),
        ("Apple M2", 2, 6400, 4, "neon"),
        ("Apple M4 Pro", 4, 8533, 4, "neon"),
    ],
)
def test_a_name_finds_its_family(name: str, channels: int, mega_transfers: int, pcie: int, isa: str) -> None:
    cpu = known_cpu(name)
    assert cpu is not None
    assert cpu[1:] == (channels, mega_transfers, pcie, isa)


def test_apple_sells_two_memories_under_one_name() -> None:
    small, large, unknown = (known_cpu("Apple M3 Max", cores) for cores in (14, 16, None))
    assert small is not None
    assert large is not None
    assert (small.theoretical_bps, large.theoretical_bps) == (307.2e9, 409.6e9)
    assert unknown is None


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "12th Gen Intel(R) Core(TM) i7-1260P",
        "Intel(R) Core(TM) i5-8250U CPU @ 1.60GHz",
        "AMD Ryzen 7 7840U w/ Radeon 780M Graphics",
        "Intel(R) Xeon(R) Processor",
        "QEMU Virtual CPU version 2.5+",
        "ryzen " * 100_000,
    ],
)
def test_what_the_name_does_not_say_is_not_guessed(name: str | None) -> None:
    assert known_cpu(name) is None
