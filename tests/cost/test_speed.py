"""Speed by hand: one block at a time, against the same arithmetic written out."""

from dataclasses import replace

import pytest

from planner.cost import drafting, rates
from planner.cost.evaluate import Evaluator
from planner.cost.host_share import host_expert_shares
from planner.cost.model import CostModel
from planner.cost.seconds import touched_share
from planner.facts.machine import Cpu
from planner.facts.reading import Reading, Source
from planner.facts.workload import Workload
from planner.plans.settings import LoadMode
from planner.units import GIB
from tests.builders import make_gpu, make_machine, make_model, make_settings

RAM, VRAM, PINNED, PAGEABLE, F16 = 60e9, 700e9, 24e9, 14e9, 70e12


def measured(value: float) -> Reading:
    return Reading(value, Source.MEASURED)


def evaluator(**work: int) -> Evaluator:
    gpu = make_gpu(
        memory_bps=measured(VRAM),
        h2d_pinned_bps=measured(PINNED),
        h2d_pageable_bps=measured(PAGEABLE),
        f16_flops=measured(F16),
    )
    machine = make_machine(gpu, cpu=Cpu(physical_cores=8, isa=("avx2",)))
    machine = replace(machine, ram=replace(machine.ram, read_bps=measured(RAM)))
    return Evaluator(CostModel(make_model(4), machine), Workload(prompt_tokens=2048, answer_tokens=512, **work))


EXPERTS = 3 * 256 * 128 * 8 * 2  # bytes of one block's experts, f16
ATTENTION = 2 * (2 * 256 * 256 + 2 * 256 * 128)
ROUTER = 2 * 256 * 8
HEAD = 512_000
DEPTH = 2048 + 256
CACHE = DEPTH * (128 + 128) * 2


def test_decode_waits_for_the_bytes_of_each_memory() -> None:
    speed = evaluator().candidate(make_settings(n_cpu_moe=1), ()).speed
    active = EXPERTS * 2 / 8
    on_gpu = 4 * (ATTENTION + ROUTER + CACHE) + 3 * active + HEAD
    expected = (
        on_gpu / (VRAM * rates.VRAM_SHARE) + active / (RAM * rates.RAM_SHARE) + 4 * rates.LAYER_S + rates.CROSSING_S
    )
    assert 1 / speed.decode_tps.mid == pytest.approx(expected)


def test_prefill_copies_the_hosts_experts_once_per_ubatch() -> None:
    price = evaluator()
    seconds = [
        2048 / price.candidate(make_settings(n_cpu_moe=n, n_ubatch=512), ()).speed.prefill_tps.mid for n in (0, 1, 2)
    ]
    touched = EXPERTS * touched_share(2 / 8, 512)
    once = touched / PINNED - touched / (VRAM * rates.VRAM_SHARE)  # copied, where it was read from VRAM
    assert seconds[1] - seconds[0] == pytest.approx(4 * once)
    assert seconds[2] - seconds[1] == pytest.approx(4 * once)


@pytest.mark.parametrize(
    ("used", "tokens", "measured", "within"),
    [
        (6 / 128, 16, 0.272, 0.01),  # distinct experts of a window of a published decode trace of gemma-4-26b-a4b
        (6 / 128, 128, 0.523, 0.03),
        (6 / 128, 128, 0.498, 0.01),  # qwen3-30b-a3b
        (2 / 128, 64, 0.280, 0.03),  # gpt-oss-120b
        (10 / 512, 1024, 262 / 512, 0.1),  # a model of 512 experts, per ubatch (zhaoyilun/moe-working-set-16gb)
        (10 / 512, 8192, 396 / 512, 0.05),
    ],
)
def test_text_touches_fewer_experts_than_chance(used: float, tokens: int, measured: float, within: float) -> None:
    found = touched_share(used, tokens)
    assert found == pytest.approx(measured, abs=within)
    assert found < 1 - (1 - used) ** tokens


def test_one_token_touches_its_own_experts_and_a_dense_block_all() -> None:
    assert touched_share(2 / 8, 1) == pytest.approx(2 / 8, rel=0.25)
    assert touched_share(2 / 8, 1) >= 2 / 8
    assert touched_share(1.0, 1) == 1.0


def test_fewer_threads_than_cores_decode_slower_from_ram() -> None:
    price = evaluator()
    host = make_settings(n_cpu_moe=4)
    half, full, more = (price.candidate(replace(host, threads=n), ()).speed.decode_tps.mid for n in (4, 8, 16))
    assert half < full == more


def test_a_quantised_cache_is_read_no_faster_on_a_gpu() -> None:
    price = evaluator()
    f16, q8 = (price.candidate(make_settings(type_k=t, type_v=t), ()).speed.decode_tps.mid for t in ("f16", "q8_0"))
    assert q8 < f16


def test_attention_on_the_cpu_is_computed_more_slowly_than_its_cache_is_read() -> None:
    """Every head scores the cache for itself: 2 x 4 heads x 128 operations per cell, more than 512 bytes take."""
    speed = evaluator().candidate(make_settings(n_gpu_layers=0, devices=()), ()).speed
    active = 4 * (ATTENTION + ROUTER + EXPERTS * 2 / 8) + HEAD
    scored = 4 * DEPTH * 2 * 4 * 128 / (8 * rates.CORE_SCORE_FLOPS)
    assert scored > 4 * CACHE / (RAM * rates.RAM_SHARE)
    assert 1 / speed.decode_tps.mid == pytest.approx(active / (RAM * rates.RAM_SHARE) + scored)


def test_the_count_of_ubatches_is_rounded_up() -> None:
    price = evaluator()
    host = make_settings(n_cpu_moe=4)
    three, two = (price.candidate(replace(host, n_ubatch=u), ()).speed for u in (1000, 1024))
    assert two.prefill_tps.mid > three.prefill_tps.mid


def test_mapped_experts_travel_at_the_pageable_rate() -> None:
    price = evaluator()
    mapped, pinned = (
        price.candidate(make_settings(n_cpu_moe=4, load_mode=mode), ()).speed for mode in (LoadMode.MMAP, LoadMode.NONE)
    )
    assert mapped.prefill_tps.mid < pinned.prefill_tps.mid
    assert mapped.decode_tps.mid == pytest.approx(pinned.decode_tps.mid)


def test_small_batches_stay_on_the_cpu() -> None:
    price = evaluator()
    small, large = (price.candidate(make_settings(n_cpu_moe=4, n_ubatch=u), ()).speed for u in (16, 64))
    off = price.candidate(make_settings(n_cpu_moe=4, n_ubatch=64, op_offload=False), ()).speed
    cpu_s = 4 * 2.0 * (3 * 256 * 128 * 8) * 2 / 8 / (3.5e10 * 8)
    assert 1 / off.prefill_tps.mid >= cpu_s
    assert 1 / small.prefill_tps.mid >= cpu_s
    assert large.prefill_tps.mid != off.prefill_tps.mid


def test_the_band_is_as_wide_as_the_weakest_rate() -> None:
    price = evaluator()
    speed = price.candidate(make_settings(), ()).speed
    assert speed.decode_tps.high / speed.decode_tps.mid == pytest.approx(1.25)
    blind = (
        Evaluator(CostModel(make_model(4), make_machine(make_gpu())), Workload()).candidate(make_settings(), ()).speed
    )
    assert blind.decode_tps.high / blind.decode_tps.mid == pytest.approx(2.0)


def test_overrides_move_single_tensors() -> None:
    model = make_model(2)
    settings = make_settings(n_cpu_moe=1, override_tensor=(("blk.1.(ffn_down_exps).", "CPU"),))
    assert host_expert_shares(model, settings, ("CUDA0",) * 3) == pytest.approx((1.0, 1 / 3))
    back = make_settings(n_cpu_moe=2, override_tensor=(("blk.0.ffn_up_exps", "CUDA0"),))
    assert host_expert_shares(model, back, ("CUDA0",) * 3) == pytest.approx((2 / 3, 1.0))


def test_reading_from_disk_costs_what_ram_lacks() -> None:
    price = evaluator()
    machine = replace(price.machine, ram=replace(price.machine.ram, available_bytes=GIB // 1024))
    short = Evaluator(CostModel(price.model, machine), Workload(prompt_tokens=2048, answer_tokens=512))
    settings = make_settings(n_cpu_moe=4, load_mode=LoadMode.MMAP)
    full, paged = price.candidate(settings, ()), short.candidate(settings, ())
    assert (full.verdict, paged.verdict) == ("fits", "pages")
    assert paged.speed.decode_tps.mid < full.speed.decode_tps.mid


def test_a_drafted_pass_reads_more_experts_and_yields_two_tokens() -> None:
    price = evaluator()
    one, drafted = (
        price.candidate(make_settings(n_cpu_moe=4, spec_type=kind), ()).speed.decode_tps.mid
        for kind in (None, "draft-mtp")
    )
    on_gpu = 4 * (ATTENTION + ROUTER + CACHE) + 4 * HEAD
    experts = 4 * EXPERTS * touched_share(2 / 8, 4)
    expected = on_gpu / (VRAM * rates.VRAM_SHARE) + experts / (RAM * rates.RAM_SHARE) + 7 * rates.LAYER_S
    assert 1 / drafted == pytest.approx((expected + 4 * rates.CROSSING_S) / drafting.ACCEPTED_TOKENS)
    assert one != drafted
