"""Prompts by hand: what passes between multiplies, the scan of a state, staged copies, and another engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.cost import rates
from planner.cost.engines import IK, LLAMA, OFFLOAD_TOKENS, engine_traits
from planner.cost.evaluate import Evaluator
from planner.cost.layer_blocks import CONVOLUTION_ROWS, blocks_of
from planner.cost.model import CostModel
from planner.cost.rates import rates_of
from planner.cost.seconds import touched_share
from planner.facts.machine import Backend, Cpu, Engine, Machine
from planner.facts.model import Model
from planner.facts.reading import Reading, Source
from planner.facts.workload import Workload
from planner.plans.settings import LoadMode, Settings
from tests.builders import make_gpu, make_machine, make_model, make_settings

VRAM, PAGEABLE, F16, PROMPT = 700e9, 14e9, 70e12, 2048
USED, EXPERTS, EXPERT_BYTES = 2 / 8, 8, 3 * 256 * 128 * 8 * 2


def measured(value: float) -> Reading:
    return Reading(value, Source.MEASURED)


def machine(**changes: object) -> Machine:
    gpu = make_gpu(
        memory_bps=measured(VRAM),
        h2d_pinned_bps=measured(24e9),
        h2d_pageable_bps=measured(PAGEABLE),
        f16_flops=measured(F16),
    )
    found = make_machine(gpu, cpu=Cpu(physical_cores=8, isa=("avx2",)))
    return replace(found, ram=replace(found.ram, read_bps=measured(60e9)), **changes)


def seconds(settings: Settings, model: Model | None = None, found: Machine | None = None) -> float:
    cost = CostModel(model or make_model(4), found or machine())
    price = Evaluator(cost, Workload(prompt_tokens=PROMPT, answer_tokens=1))
    return PROMPT / price.candidate(settings, ()).speed.prefill_tps.mid


def with_state(elements: int, rows: int) -> Model:
    """Every block keeps a recurrent state and the rows of a convolution."""
    model = make_model(4)
    layers = tuple(replace(layer, state_s=elements, state_r=rows) for layer in model.layers)
    return replace(model, layers=layers)


def test_a_recurrent_state_is_scanned_token_by_token() -> None:
    ubatch = make_settings(n_ubatch=512)
    elements, rows = 1 << 19, CONVOLUTION_ROWS * 8192
    more = seconds(ubatch, with_state(elements, rows)) - seconds(ubatch)
    scan = rates.SCAN_FLOP * elements / (F16 * rates.SCAN_SHARE)
    passed = 4 * 8192 * rates.ROW_PASSES / (VRAM * rates.VRAM_SHARE)
    assert more == pytest.approx(PROMPT * 4 * (scan + passed))


def test_every_residual_stream_passes_through_memory() -> None:
    model = make_model(4)
    wide = replace(model, metadata=(*model.metadata, (f"{model.arch}.hyper_connection.count", 4)))
    assert blocks_of(wide)[0].row_elements - blocks_of(model)[0].row_elements == 3 * model.n_embd
    more = seconds(make_settings(n_ubatch=512), wide) - seconds(make_settings(n_ubatch=512))
    assert more == pytest.approx(PROMPT * 4 * 3 * 4 * model.n_embd * rates.ROW_PASSES / (VRAM * rates.VRAM_SHARE))


def test_pageable_experts_wait_for_every_run_of_neighbours() -> None:
    ubatch = make_settings(n_ubatch=64, load_mode=LoadMode.MMAP)
    passes, touched = PROMPT // 64, touched_share(USED, 64)
    more = seconds(replace(ubatch, n_cpu_moe=1)) - seconds(ubatch)
    bytes_s = EXPERT_BYTES * touched * (1 / PAGEABLE - 1 / (VRAM * rates.VRAM_SHARE))
    runs = 3 * EXPERTS * touched * (1 - touched)
    assert more == pytest.approx(passes * (bytes_s + runs * rates.PIECE_S))


def test_pinned_experts_do_not_wait() -> None:
    ubatch = make_settings(n_ubatch=64, load_mode=LoadMode.NONE)
    passes, touched = PROMPT // 64, touched_share(USED, 64)
    more = seconds(replace(ubatch, n_cpu_moe=1)) - seconds(ubatch)
    assert more == pytest.approx(passes * EXPERT_BYTES * touched * (1 / 24e9 - 1 / (VRAM * rates.VRAM_SHARE)))


@pytest.mark.parametrize(
    ("pinned", "ram", "low", "high"),
    [(23.46e9, 64e9, 10.8e9, 14.28e9), (55e9, 95e9, 16.5e9, 20e9)],
    ids=["PCIe 4.0, Windows, measured in prefill and alone", "PCIe 5.0, two machines"],
)
def test_pageable_copies_are_staged(pinned: float, ram: float, low: float, high: float) -> None:
    gpu = make_gpu(h2d_pinned_bps=measured(pinned), h2d_pageable_bps=None)
    found = make_machine(gpu)
    found = replace(found, ram=replace(found.ram, read_bps=measured(ram)))
    staged = rates_of(found).gpus["CUDA0"].pageable
    assert low <= staged.value <= high
    slow = replace(found, ram=replace(found.ram, read_bps=measured(20e9)))
    assert rates_of(slow).gpus["CUDA0"].pageable.value == pytest.approx(1 / (1 / pinned + 1 / 10e9))
    other = replace(found, gpus=(replace(gpu, backend=Backend.ROCM),))
    assert rates_of(other).gpus["CUDA0"].pageable.value == pinned


def test_ik_llama_counts_tokens_per_expert_before_it_copies() -> None:
    assert LLAMA.offload_tokens(USED) == OFFLOAD_TOKENS
    assert IK.offload_tokens(USED) == OFFLOAD_TOKENS * 4
    assert IK.offload_tokens(0.0) == OFFLOAD_TOKENS
    assert engine_traits(None) is LLAMA
    assert engine_traits(Engine("ik_llama.cpp")) is IK


def test_below_that_its_processor_multiplies_faster() -> None:
    ik = machine(engine=Engine("ik_llama.cpp"))
    moved = make_settings(n_ubatch=64, n_cpu_moe=4)
    on_cpu = replace(moved, op_offload=False)
    assert seconds(moved, found=ik) == seconds(on_cpu, found=ik), "64 tokens are 16 per expert: nothing is copied"
    assert seconds(moved) != seconds(on_cpu)
    flop = PROMPT * 4 * 2 * (EXPERT_BYTES / 2) * USED
    core = rates.CORE_FLOPS["avx2"] * 8
    assert seconds(on_cpu) - seconds(on_cpu, found=ik) == pytest.approx(flop / core * (1 - 1 / IK.core_gain))
    enough = replace(moved, n_ubatch=128)
    assert seconds(enough, found=ik) == seconds(enough)
