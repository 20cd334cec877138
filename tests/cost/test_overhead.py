"""What no llama.cpp breakdown shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.cost.known_nvidia import NVIDIA
from planner.cost.known_sms import RESIDENT_THREADS
from planner.cost.model import CostModel
from planner.cost.overhead import activation_bytes, driver_context
from planner.facts.machine import Backend, DriverModel, Gpu
from planner.facts.model import AttentionKind
from planner.facts.reading import Source
from planner.plans.settings import Settings, Tool
from planner.units import GIB, MIB
from tests.builders import make_gpu, make_layer, make_machine, make_model, make_settings


def context(gpu: Gpu, n_ubatch: int = 512) -> int:
    (term,) = driver_context(gpu, n_ubatch, 0, 0)
    assert term.source is Source.ASSUMED
    return term.n_bytes // MIB


@pytest.mark.parametrize(
    ("multiprocessors", "bare"),
    [(188, 555), (82, 256), (34, 107)],  # MiB, published: ggml-org/llama.cpp#23604, invoke-ai/InvokeAI#9413
)
def test_a_context_holds_what_an_idle_process_takes(multiprocessors: int, bare: int) -> None:
    found = context(make_gpu(threads=multiprocessors * 1536), n_ubatch=16)
    assert bare < found - 18 <= bare + 80


@pytest.mark.parametrize(
    ("total", "driver", "n_ubatch", "low", "high"),
    [
        (16 * GIB, DriverModel.WDDM, 16, 293, 320),  # decode alone, measured 289-293 MiB
        (16 * GIB, DriverModel.WDDM, 512, 400, 481),  # with its prompt, at most 481 sampled
        (48 * GIB, DriverModel.WDDM, 512, 400, 481),
        (141 * GIB, DriverModel.LINUX, 512, 732, 740),  # 702-731 beside what is counted apart
    ],
)
def test_without_a_count_of_threads_the_size_decides(
    total: int, driver: DriverModel, n_ubatch: int, low: int, high: int
) -> None:
    assert low <= context(make_gpu(total_bytes=total, driver_model=driver), n_ubatch) <= high


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("NVIDIA GeForce RTX 4090", 456, 600),  # 451-456 after an answer, ggml-org/llama.cpp#15860
        ("NVIDIA GeForce RTX 3060", 150, 300),
        ("NVIDIA GeForce RTX 5090", 600, 740),
    ],
)
def test_without_a_count_of_threads_the_name_decides(name: str, low: int, high: int) -> None:
    found = make_gpu(name=name)
    assert low <= context(found) <= high
    assert context(replace(found, threads=80 * 1536)) == context(make_gpu(threads=80 * 1536))


def test_every_card_of_the_rate_table_has_its_multiprocessors() -> None:
    assert {row[0] for row in NVIDIA} == set(RESIDENT_THREADS)


def test_pinned_memory_stands_in_page_tables() -> None:
    """34 MiB more for 16,907 MiB pinned than mapped, 20 for 9,882 (cases/moe_cache, cases/gpu_sweep)."""
    for pinned, more in ((16907, 34), (9882, 20)):
        _, tables = driver_context(make_gpu(), 512, pinned * MIB, 0)
        assert tables.n_bytes / MIB == pytest.approx(more, abs=0.5)


def test_quantised_activations_grow_with_the_ubatch() -> None:
    """A token's rows for 8 experts of 2,048 values are 18 KiB of q8_1; up to 16 MiB the context covers them."""
    found = {u: driver_context(make_gpu(), u, 0, 18 * 1024)[1:] for u in (512, 1024, 2048, 4096)}
    assert found[512] == ()
    assert [found[u][0].n_bytes // MIB for u in (1024, 2048, 4096)] == [2, 20, 56]
    assert driver_context(make_gpu(backend=Backend.VULKAN), 4096, 0, 18 * 1024)[1:] == ()


def test_the_widest_multiply_of_a_token() -> None:
    model = make_model()
    assert activation_bytes(model) == 0  # nothing is quantised
    tensors = tuple(replace(t, type="Q4_K") if t.name == "blk.1.ffn_up_exps.weight" else t for t in model.tensors)
    assert activation_bytes(replace(model, tensors=tensors)) == 2 * 512 * 36 // 32


@pytest.mark.parametrize("backend", [Backend.RPC, Backend.METAL])
def test_no_context_where_it_is_not_ours(backend: Backend) -> None:
    assert driver_context(make_gpu(backend=backend), 512, MIB, MIB) == ()


def overheads(settings: Settings, tool: Tool = Tool.SERVER, **layer: object) -> dict[str, int]:
    model = make_model(layers=tuple(make_layer(i, **layer) for i in range(4)))
    host = CostModel(model, make_machine(make_gpu()), tool).memory(settings).host
    return {term.name: term.n_bytes for term in host.overhead}


def test_one_row_of_logits_per_slot() -> None:
    assert overheads(make_settings(n_parallel=3))["output buffer"] == 4 * 1000 * 3


def test_the_prompt_cache_is_the_servers_alone() -> None:
    settings = make_settings(cache_ram_mib=8192)
    assert overheads(settings)["prompt cache (-cram)"] == 8192 * MIB
    assert "prompt cache (-cram)" not in overheads(settings, Tool.BENCH)
    assert "prompt cache (-cram)" not in overheads(make_settings(cache_ram_mib=0))


def test_checkpoints_hold_state_and_windows() -> None:
    settings = make_settings(ctx_checkpoints=32)
    state = {"kind": AttentionKind.RECURRENT, "n_embd_k": 0, "n_embd_v": 0, "state_s": 1000}
    assert overheads(settings, **state)["context checkpoints"] == 32 * 4 * 1000 * 4
    assert overheads(settings, window=128)["context checkpoints"] == 32 * 4 * 768 * 512
    assert "context checkpoints" not in overheads(settings)
    assert "context checkpoints" not in overheads(make_settings(ctx_checkpoints=0), **state)
