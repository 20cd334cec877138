"""Healthy and collapsed runs of a 16 GB card under WDDM, replayed as the samples and timings that a watch would see."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from planner.facts.observed import GpuSample, Sample
from planner.plans.speed import Band
from planner.units import GIB, MIB
from planner.verify.collapse import Card, Expected, Progress, collapse

TOTAL = 16376 * MIB
OVERHEAD = 290 * MIB
"""CUDA context and the like on that card (289 to 293 MiB over eight runs)."""
DESKTOP = 240 * MIB


def band(mid: float) -> Band:
    return Band(mid / 1.25, mid, mid * 1.25)


EXPECTED = Expected(band(15.0), band(500.0), (Card("CUDA0", TOTAL, GIB, True),))


def samples(busy: float, used_mib: float | None, seconds: float, **more: Any) -> tuple[Sample, ...]:
    used = None if used_mib is None else round(used_mib * MIB)
    return tuple(Sample(float(t), (GpuSample("CUDA0", used, busy),), **more) for t in range(0, int(seconds) + 3, 2))


def rows(shared: Path) -> list[dict[str, Any]]:
    path = shared / "cases" / "evidence_16gb.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def prediction(row: dict[str, Any], others: list[dict[str, Any]]) -> Expected:
    """What would have been predicted: the middle of the comparable healthy runs."""
    same = [o for o in others if not o["collapsed"] and o["series"] == row["series"]]
    same = [o for o in same if (o["ctx"], o["ubatch"]) == (row["ctx"], row["ubatch"])] or same
    decode = [o["decode_tps"] for o in same if o["decode_tps"]]
    prefill = [o["prefill_tps"] for o in same if o["prefill_tps"]]
    near = [
        o["prefill_tps"] for o in others if not o["collapsed"] and o["ubatch"] == row["ubatch"] and o["prefill_tps"]
    ]
    spare = None
    if row["accounted_mib"]:
        base = row["baseline_vram_mib"] * MIB if row["baseline_vram_mib"] else DESKTOP
        spare = TOTAL - base - OVERHEAD - round(row["accounted_mib"] * MIB)
    card = Card("CUDA0", TOTAL, GIB, True, spare)
    return Expected(band(median(decode or [15.0])), band(median(prefill or near or [500.0])), (card,))


def gaps(row: dict[str, Any]) -> tuple[float, ...]:
    """Token times with the run's own p50 and p95."""
    chance, p50 = random.Random(row["id"]), row["p50_ms"] / 1e3
    sigma = log((row["p95_ms"] / 1e3) / p50) / 1.645
    return tuple(p50 * exp(chance.gauss(0, sigma)) for _ in range(100))


def judged(row: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """What the watch says of a run at any moment of it."""
    expected = prediction(row, others)
    busy = 1.0 if row["collapsed"] else 0.34
    used = 16376 - row["min_free_vram_mib"] if row["min_free_vram_mib"] else None
    moments: list[Progress] = []
    if row["prefill_tps"] and row["n_prompt"]:
        seconds = row["n_prompt"] / row["prefill_tps"]
        moments += [Progress(seconds * part, row["n_prompt"], int(row["n_prompt"] * part)) for part in (0.3, 0.6, 0.9)]
    if row["decode_tps"] and row["p50_ms"] and row["p95_ms"]:
        times = gaps(row)
        moments += [Progress(sum(times[:n]), 16, 16, 0.4, times[:n]) for n in (8, 16, 40, 100)]
    moments = moments or [Progress(30.0, 16)]
    found = [collapse(expected, moment, samples(busy, used, moment.elapsed_s)) for moment in moments]
    return next(filter(None, found), "")


def test_every_collapsed_run_is_called_so_and_no_healthy_one(shared: Path) -> None:
    found = rows(shared)
    wrong = {row["id"]: said for row in found if bool(said := judged(row, found)) != bool(row["collapsed"])}
    assert wrong == {}
    assert sum(bool(row["collapsed"]) for row in found) == 5 and len(found) == 131


def test_the_transient_collapse_is_seen_within_seconds() -> None:
    """157 s for 100 tokens at 100 % load, 100 MiB free in sums: stopped at the first dozen tokens, not after 157 s."""
    expected = replace(EXPECTED, cards=(Card("CUDA0", TOTAL, GIB, True, 260 * MIB),))
    moment = Progress(13.0, 16, 16, 0.5, (1.57,) * 8)
    assert "decode runs at 0.6 tok/s" in collapse(expected, moment, samples(1.0, None, 13))


def test_minutes_to_the_first_token() -> None:
    assert collapse(EXPECTED, Progress(11.0, 16), samples(1.0, 8000, 11)).startswith("11 s to the first token")
    assert collapse(EXPECTED, Progress(9.0, 16), samples(1.0, 8000, 9)) == ""
    assert collapse(EXPECTED, Progress(60.0, 16384), samples(1.0, 8000, 60)) == ""


def test_a_long_tail_counts_while_something_presses() -> None:
    times = (0.05,) * 38 + (1.5,) * 4
    assert "one token in twenty" in collapse(EXPECTED, Progress(9.0, 16, 16, 0.4, times), samples(1.0, 8000, 9))
    assert collapse(EXPECTED, Progress(9.0, 16, 16, 0.4, times), samples(0.3, 8000, 9)) == ""


def test_less_than_the_rule_free_is_a_collapse_where_the_system_pages() -> None:
    said = collapse(EXPECTED, Progress(1.0, 16), samples(0.3, 15900, 1))
    assert said == "CUDA0 has 476 MiB free; under WDDM less than 1,024 MiB pages"
    linux = replace(EXPECTED, cards=(replace(EXPECTED.cards[0], hard=False),))
    assert collapse(linux, Progress(1.0, 16), samples(0.3, 15900, 1)) == ""


def test_a_full_gpu_is_no_sign_where_everything_is_on_it() -> None:
    whole = replace(EXPECTED, hybrid=False)
    assert collapse(whole, Progress(20.0, 16, 16, 0.4, (0.5,) * 20), samples(1.0, 8000, 20)) == ""


def test_shared_memory_that_grows() -> None:
    first, last = (Sample(t, (GpuSample("CUDA0", 8 * GIB, 0.5, n),)) for t, n in ((0.0, 0), (4.0, GIB)))
    moment = Progress(20.0, 16, 16, 0.4, (0.5,) * 20)
    assert "spilled 1,024 MiB into host memory" in collapse(EXPECTED, moment, (first, last))


def test_pages_from_the_disk_count_once_the_file_is_in() -> None:
    """A first touch of a mapped file faults, too, but then resident memory grows."""
    moment = Progress(20.0, 16, 16, 0.4, (0.5,) * 20)

    def run(rss: int) -> tuple[Sample, ...]:
        return (Sample(0.0, (), GIB, 0), Sample(2.0, (), GIB + rss, 2000))

    assert "pages per second come from the disk" in collapse(EXPECTED, moment, run(0))
    assert collapse(EXPECTED, moment, run(512 * MIB)) == ""
