"""llama.cpp's pool of experts: slots and bytes, hit rates, and the break-even that was measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.cost.evaluate import Evaluator
from planner.cost.model import CostModel
from planner.cost.pool import PIECE_S, SERVED_S, Group, Pools
from planner.cost.pool_gain import break_even, gain, largest
from planner.facts.machine import LayerRate, Machine
from planner.facts.model import Model
from planner.facts.reading import Reading, Source
from planner.facts.routing import Ground, prior
from planner.facts.workload import Workload
from planner.gguf.analyze import analyze
from planner.plans.memory import total
from planner.plans.plan import Candidate
from planner.plans.settings import LoadMode, Settings
from planner.units import GIB, MIB
from tests.builders import make_gpu, make_machine, make_model, make_settings

SLOT = 3 * 256 * 128 * 2
LINK, RAM, VRAM = 55e9, 95.6e9, 4.8e12
DRAWN_S = 151_936 * 1.0e-8
"""The answers of cases/moe_cache.jsonl were drawn at temperature 4 from the whole vocabulary: 10 ns an entry and token
(benchmarks/pool/sampler.py). Of the 40 likeliest, as usual, drawing takes 0.1 ms, which no prediction counts."""


def measured(value: float) -> Reading:
    return Reading(value, Source.MEASURED)


def fast_machine() -> Machine:
    """As in cases/moe_cache.jsonl: a datacentre card behind 55 GB/s, RAM of 95.6 GB/s."""
    gpu = make_gpu(
        total_bytes=140 * GIB, used_bytes=None, free_bytes=140 * GIB, memory_bps=measured(VRAM),
        h2d_pinned_bps=measured(LINK), f16_flops=measured(9e14),
    )  # fmt: skip
    machine = make_machine(gpu)
    return replace(machine, ram=replace(machine.ram, read_bps=measured(RAM)))


def groups(settings: Settings, model: Model | None = None) -> tuple[Group, ...]:
    model = model or make_model()
    shares = tuple(1.0 if i < settings.n_cpu_moe else 0.0 for i in range(model.n_layer))
    return Pools(model, fast_machine()).groups(settings, ("CUDA0",) * (model.n_layer + 1), shares)


def test_slots_are_whole_experts_less_the_spare_one() -> None:
    (group,) = groups(make_settings(moe_cache_mib=2, n_cpu_moe=4))
    assert (group.slots, group.bytes) == (2 * MIB // SLOT - 1, 2 * MIB // SLOT * SLOT)
    (whole,) = groups(make_settings(moe_cache_mib=64, n_cpu_moe=4))
    assert (whole.slots, whole.share) == (4 * 8, 1.0)


def test_blocks_of_other_types_have_slots_of_their_own() -> None:
    model = make_model()
    tensors = tuple(
        replace(t, type="Q8_0", n_bytes=t.n_bytes // 2) if t.name == "blk.3.ffn_down_exps.weight" else t
        for t in model.tensors
    )
    found = groups(make_settings(moe_cache_mib=2, n_cpu_moe=4), replace(model, tensors=tensors))
    assert [group.blocks for group in found] == [(0, 1, 2), (3,)]
    assert sum(group.bytes for group in found) <= 2 * MIB


def test_biases_of_experts_take_no_slot() -> None:
    """They are moved with the experts, but llama.cpp's cache holds the matrices alone (gpt-oss has such biases)."""
    model, settings = make_model(), make_settings(moe_cache_mib=2, n_cpu_moe=4)
    down = next(t for t in model.tensors if t.name == "blk.0.ffn_down_exps.weight")
    bias = replace(down, name="blk.0.ffn_down_exps.bias", type="F32", shape=(128, 8), n_bytes=128 * 8 * 4)
    assert groups(settings, replace(model, tensors=(*model.tensors, bias))) == groups(settings, model)


def test_a_group_that_holds_no_token_is_off_and_a_pool_of_such_groups_does_not_load() -> None:
    settings = make_settings(moe_cache_mib=1, n_cpu_moe=4)
    (group,) = groups(settings, make_model(n_expert_used=6))
    model = make_model(n_expert_used=6, layers=tuple(replace(x, n_expert_used=6) for x in make_model().layers))
    (off,) = groups(settings, model)
    assert (group.slots, off.slots) == (4, 0)
    objections = CostModel(model, fast_machine()).pools.objections
    assert "too small" in objections(settings, ("CUDA0",) * 5, (1.0,) * 4)[0]
    assert not objections(make_settings(n_cpu_moe=4), ("CUDA0",) * 5, (1.0,) * 4)


def test_nothing_hits_below_one_token() -> None:
    pools = Pools(make_model(), fast_machine())
    below, above = (Group("CUDA0", (0, 1, 2, 3), slots, SLOT, 8, 2, 3) for slots in (7, 8))
    assert pools.hit_rate(below) == 0.0
    assert pools.hit_rate(above) == pytest.approx(prior(2 / 8).at(8 / 32))
    assert pools.curve.ground is Ground.PRIOR


def test_decode_waits_for_misses_and_read_backs_and_no_longer_for_ram() -> None:
    model, machine = make_model(), fast_machine()
    asked = Evaluator(CostModel(model, machine), Workload(prompt_tokens=512, answer_tokens=64))
    on_gpu = asked.candidate(make_settings(n_cpu_moe=0), ()).speed.decode_tps.mid
    settings = make_settings(n_cpu_moe=4, moe_cache_mib=4)
    pooled = asked.candidate(settings, ()).speed.decode_tps.mid
    (group,) = groups(settings)
    missed = 4 * 2 * (1.0 - asked.cost.pools.hit_rate(group))
    expected = 1 / on_gpu + missed * (SLOT / LINK + 3 * PIECE_S) + 4 * SERVED_S
    assert 1 / pooled == pytest.approx(expected)


def test_prefill_copies_only_what_the_pool_does_not_hold() -> None:
    asked = Evaluator(CostModel(make_model(), fast_machine()), Workload(prompt_tokens=512, answer_tokens=64))
    rates = [asked.candidate(make_settings(n_cpu_moe=4, moe_cache_mib=n), ()).speed.prefill_tps.mid for n in (0, 4, 64)]
    assert rates == sorted(rates) and len(set(rates)) == 3


def test_break_even_by_hand() -> None:
    assert break_even(0.030, 0.008, 0.025) == pytest.approx(0.12)
    assert break_even(0.010, 0.012, 0.020) == 1.0
    assert break_even(0.050, 0.008, 0.025) == 0.0


def test_the_largest_step_that_fits() -> None:
    assert [largest((64, 128, 256), n) for n in (63, 64, 200, 999)] == [0, 64, 128, 256]


@pytest.fixture(scope="module")
def rows(shared: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (shared / "cases" / "moe_cache.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def model(zoo: Callable[[str], Path]) -> Model:
    return analyze(str(zoo("qwen3-30b-a3b")))


def settings_of(row: dict[str, Any]) -> Settings:
    return make_settings(
        n_ctx=row["ctx"],
        n_ubatch=row["ubatch"],
        n_cpu_moe=row["n_cpu_moe"],
        moe_cache_mib=row["moe_cache_mib"],
        load_mode=LoadMode(row["load_mode"]),
    )


def drawn(candidate: Candidate) -> Candidate:
    """The candidate with the time that those rows took to draw a token."""
    decode = candidate.speed.decode_tps
    slower = replace(decode, mid=1.0 / (1.0 / decode.mid + DRAWN_S))
    return replace(candidate, speed=replace(candidate.speed, decode_tps=slower))


LAYER_S = 3.46e-3 / 48
"""A token of qwen3-30b-a3b on that card with everything on it, per block (b11549; ``rates.LAYER_S``)."""


def price(model: Model) -> Evaluator:
    """Prices on that machine, where a layer of the model was timed."""
    layer = LayerRate(model.fingerprint, "CUDA0", "moe", decode_s=measured(LAYER_S))
    machine = replace(fast_machine(), layers=(layer,))
    return Evaluator(CostModel(model, machine), Workload(prompt_tokens=1800, answer_tokens=96))


def with_pool(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (row for row in rows if row["cache"] and row["load_mode"] == "none")


def test_the_pools_memory_is_what_the_card_showed(rows: list[dict[str, Any]], model: Model) -> None:
    """Peak with the pool less the peak of the same placement without it, within 1 % of the prediction."""
    bare = {row["n_cpu_moe"]: row["peak_mib"] for row in rows if not row["moe_cache_mib"]}
    seen = 0
    for row in with_pool(rows):
        if row["n_cpu_moe"] in bare:
            found = total(price(model).candidate(settings_of(row), ()).memory.devices[0].cache) / MIB
            assert found == pytest.approx(row["peak_mib"] - bare[row["n_cpu_moe"]], rel=0.01), row["moe_cache_mib"]
            seen += 1
    assert seen == 11


def test_peaks_are_never_above_the_prediction(rows: list[dict[str, Any]], model: Model) -> None:
    """With a pool and without, pinned and mapped: the whole device is predicted within 1 %, and never too low."""
    for row in rows:
        device = price(model).candidate(settings_of(row), ()).memory.devices[0]
        assert 1.0 <= device.predicted_bytes / MIB / row["peak_mib"] <= 1.01, row["flags"]


def hits(monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]) -> float:
    """The row's own hit rate takes the place of the expected one."""
    found = float(row["cache"]["hit_pct"]) / 100
    monkeypatch.setattr(Pools, "hit_rate", lambda self, group: found)
    return found


def test_decode_at_the_measured_hit_rates(
    rows: list[dict[str, Any]], model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """39.5 tok/s at 21 % to 155 at 98 %: every row within 15 %, the median of all within 5 %."""
    ratios = []
    for row in with_pool(rows):
        hits(monkeypatch, row)
        speed = drawn(price(model).candidate(settings_of(row), ())).speed
        ratios.append(speed.decode_tps.mid / statistics.median(row["decode_tps"]))
        assert ratios[-1] == pytest.approx(1.0, abs=0.15), row
    assert statistics.median(ratios) == pytest.approx(1.0, abs=0.05)


def test_the_measured_break_even(rows: list[dict[str, Any]], model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that hit 21.4 % was as fast as none (39.5 and 39.2 tok/s): the formula puts the break-even there."""
    same = [row for row in rows if row["router"] == "skew0.25" and row["n_cpu_moe"] == 48]
    none = next(row for row in same if not row["moe_cache_mib"])
    even = next(row for row in same if row["moe_cache_mib"] == 1024)
    rate, asked = hits(monkeypatch, even), price(model)
    pool, without = (drawn(asked.candidate(settings_of(row), ())) for row in (even, none))
    seconds = replace(without.speed.decode_tps, mid=statistics.median(none["decode_tps"]))
    told = replace(without, speed=replace(without.speed, decode_tps=seconds))
    found = gain(model, fast_machine(), pool, told)
    assert found.break_even == pytest.approx(rate, abs=0.03)
