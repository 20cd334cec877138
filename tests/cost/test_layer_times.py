"""Timed layers in the speed model: what they replace, what stays, and where they do not apply."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.cost import rates
from planner.cost.behind import assumed_rates
from planner.cost.evaluate import Evaluator
from planner.cost.model import CostModel
from planner.facts.machine import Cpu, LayerRate, Machine
from planner.facts.model import Model
from planner.facts.reading import Reading, Source
from planner.facts.workload import Workload
from planner.plans.settings import LoadMode, Settings
from tests.builders import block_tensors, make_gpu, make_machine, make_model, make_settings

RAM, VRAM = 60e9, 700e9
WORK = Workload(prompt_tokens=2048, answer_tokens=512)
ACTIVE = 2 * (2 * 256 * 256 + 2 * 256 * 128) + 2 * 256 * 8 + 3 * 256 * 128 * 2 * 2
CACHE = (2048 + 256) * (128 + 128) * 2
HEAD = 512_000
TIMED_TOKENS = 512


def measured(value: float) -> Reading:
    return Reading(value, Source.MEASURED)


def rate(device: str, experts: str, decode: float, per_token: float, fixed: float, **more: object) -> LayerRate:
    base = LayerRate(
        "0" * 16, device, "moe", "F16", measured(decode), measured(per_token), TIMED_TOKENS, fixed,
        experts=experts, read_bytes=ACTIVE, threads=None if (device, experts) == ("CUDA0", "device") else 8,
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


TIMED = (
    rate("CPU", "device", 0.004, 0.001, 0.010),
    rate("CUDA0", "device", 0.001, 0.0001, 0.002),
    rate("CUDA0", "host", 0.003, 0.0002, 0.020),
)


def machine(*layers: LayerRate) -> Machine:
    gpu = make_gpu(memory_bps=measured(VRAM))
    found = make_machine(gpu, cpu=Cpu(physical_cores=8, isa=("avx2",)), layers=layers)
    return replace(found, ram=replace(found.ram, read_bps=measured(RAM)))


def seconds(settings: Settings, *layers: LayerRate, model: Model | None = None) -> tuple[float, float]:
    """(per answered token, of the whole prompt)"""
    price = Evaluator(CostModel(model or make_model(4), machine(*layers)), WORK)
    speed = price.candidate(settings, ()).speed
    return 1 / speed.decode_tps.mid, 2048 / speed.prefill_tps.mid


ON_CPU = make_settings(n_gpu_layers=0, devices=(), n_ubatch=512)
ON_GPU = make_settings(n_ubatch=512)
SCORED = 4 * (2048 + 256) * 2 * 4 * 128 / (8 * rates.CORE_SCORE_FLOPS)
REST_RAM = max(4 * CACHE / (RAM * rates.RAM_SHARE), SCORED) + HEAD / (RAM * rates.RAM_SHARE)
REST_GPU = (4 * CACHE + HEAD) / (VRAM * rates.VRAM_SHARE)


def deeper(flops: float) -> float:
    """Attention of the prompt beyond the ubatch from nothing that was timed: 1,024 operations per pair of tokens."""
    return 4 * 2048 * 1024 * (2048 - TIMED_TOKENS) / 2 / flops


CORES, CARD = 8 * rates.CORE_PROMPT_SCORE_FLOPS, 70e12 * rates.ATTENTION_SHARE


@pytest.mark.parametrize(
    ("settings", "decode", "prefill"),
    [
        (ON_CPU, 4 * 0.004 + REST_RAM, 4 * (4 * 0.010 + 2048 * 0.001) + deeper(CORES)),
        (ON_GPU, 4 * 0.001 + REST_GPU, 4 * (4 * 0.002 + 2048 * 0.0001) + deeper(CARD)),
        (replace(ON_GPU, n_cpu_moe=4), 4 * 0.003 + REST_GPU, 4 * (4 * 0.020 + 2048 * 0.0002) + deeper(CARD)),
        (
            replace(ON_GPU, n_cpu_moe=1),
            3 * 0.001 + 0.003 + REST_GPU,
            3 * 0.2128 + 0.08 + 2048 * 0.0002 + deeper(CARD),
        ),
        (replace(ON_GPU, n_ubatch=1000), 4 * 0.001 + REST_GPU, 4 * (3 * 0.002 + 2048 * 0.0001) + deeper(CARD)),
    ],
)
def test_timed_layers_replace_weights_and_multiplies(settings: Settings, decode: float, prefill: float) -> None:
    """The cache at its depth, the head, the count of ubatches and attention beyond a timed one stay."""
    assert seconds(settings, *TIMED) == pytest.approx((decode, prefill))


def test_part_of_the_experts_on_the_host_lies_between() -> None:
    third = replace(ON_GPU, override_tensor=((r"blk\.0\.ffn_down_exps", "CPU"),))
    ends = [seconds(replace(ON_GPU, n_cpu_moe=n), *TIMED) for n in (0, 1)]
    found = seconds(third, *TIMED)
    for k in (0, 1):
        assert found[k] == pytest.approx(ends[0][k] + (ends[1][k] - ends[0][k]) / 3)


def test_another_expert_type_is_scaled_by_the_bytes_a_token_reads() -> None:
    tensors = block_tensors(3)
    wide = tuple(replace(t, type="F32", n_bytes=2 * t.n_bytes) if "_exps" in t.name else t for t in tensors)
    base = make_model(4)
    model = replace(base, tensors=(*(t for t in base.tensors if t.layer != 3), *wide))
    experts = 3 * 256 * 128 * 2 * 2
    decode, _ = seconds(ON_CPU, *TIMED, model=model)
    assert decode == pytest.approx(3 * 0.004 + 0.004 * (ACTIVE + experts) / ACTIVE + REST_RAM)
    own = rate("CPU", "device", 0.007, 0.001, 0.010, expert_type="F32", read_bytes=ACTIVE + experts)
    decode, _ = seconds(ON_CPU, *TIMED, own, model=model)
    assert decode == pytest.approx(3 * 0.004 + 0.007 + REST_RAM)


@pytest.mark.parametrize(
    ("settings", "layers"),
    [
        (ON_CPU, tuple(replace(item, model="another") for item in TIMED)),
        (ON_CPU, TIMED[1:]),
        (ON_CPU, tuple(replace(item, kind="dense") for item in TIMED)),
        (replace(ON_CPU, threads=16), TIMED),
        (replace(ON_GPU, n_cpu_moe=4, threads=2), TIMED[2:]),
        (replace(ON_GPU, n_cpu_moe=4, load_mode=LoadMode.MMAP), TIMED),
        (replace(ON_GPU, n_cpu_moe=4, no_host=True), TIMED),
    ],
)
def test_layers_timed_under_other_conditions_change_nothing(settings: Settings, layers: tuple[LayerRate, ...]) -> None:
    assert seconds(settings, *layers) == seconds(settings)


def test_fewer_threads_than_timed_are_slower_by_as_much_as_they_are_fewer() -> None:
    """Otherwise a slow layer would make every other count of threads look fast."""
    decode, prefill = seconds(replace(ON_CPU, threads=2), *TIMED)
    before = seconds(ON_CPU, *TIMED)
    assert decode > before[0] + 4 * 0.004 * (4**rates.THREAD_POWER - 1) * 0.999
    assert prefill == pytest.approx(4 * (4 * 0.010 + 2048 * 0.001 * 4) + deeper(CORES))


def test_prefill_that_does_not_stream_is_not_taken_from_one_that_did() -> None:
    """A small ubatch, no op offload, or blocks on the host beside a device: estimated as before."""
    for changes in ({"n_ubatch": 16}, {"op_offload": False}):
        settings = replace(ON_GPU, n_cpu_moe=4, **changes)  # type: ignore[arg-type]
        assert seconds(settings, *TIMED)[1] == seconds(settings)[1]
    half = replace(ON_GPU, n_gpu_layers=1)
    assert seconds(half, *TIMED)[1] == seconds(half)[1]
    assert seconds(half, *TIMED)[0] != seconds(half)[0]


def test_the_band_narrows_with_the_measured_share() -> None:
    blind = make_machine(make_gpu(), cpu=Cpu(physical_cores=8))

    def width(*layers: LayerRate) -> float:
        price = Evaluator(CostModel(make_model(40), replace(blind, layers=layers)), WORK)
        speed = price.candidate(ON_GPU, ()).speed
        return speed.prefill_tps.high / speed.prefill_tps.mid

    assert width() == pytest.approx(2.0)
    assert width(*TIMED) == pytest.approx(1.25)


def test_rates_that_timed_layers_make_needless_are_not_called_assumed() -> None:
    blind = make_machine(make_gpu(), cpu=Cpu(physical_cores=8))

    def words(*layers: LayerRate) -> list[str]:
        found = assumed_rates(rates.rates_of(replace(blind, layers=layers)), ON_GPU, pages=False)
        return [word.rsplit(" ", 2)[0] for word in found]

    assert words() == ["RAM", "CUDA0 memory", "CUDA0 pinned link", "CUDA0 f16"]
    assert words(*TIMED) == ["RAM", "CUDA0 memory"]
