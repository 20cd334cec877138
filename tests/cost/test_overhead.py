"""What no llama.cpp breakdown shows."""

from __future__ import annotations

import pytest

from planner.cost.model import CostModel
from planner.cost.overhead import driver_context
from planner.facts.machine import Backend, DriverModel
from planner.facts.model import AttentionKind
from planner.facts.reading import Source
from planner.plans.settings import Settings, Tool
from planner.units import GIB, MIB
from tests.builders import make_gpu, make_layer, make_machine, make_model, make_settings


@pytest.mark.parametrize(
    ("total", "driver", "low", "high"),
    [
        (16 * GIB, DriverModel.WDDM, 293, 340),  # measured 289-293 MiB
        (24 * GIB, DriverModel.LINUX, 293, 340),
        (141 * GIB, DriverModel.LINUX, 781, 860),  # measured 755-781 MiB
        (48 * GIB, DriverModel.WDDM, 293, 340),
    ],
)
def test_the_assumed_context_is_not_below_what_was_measured(
    total: int, driver: DriverModel, low: int, high: int
) -> None:
    (term,) = driver_context(make_gpu(total_bytes=total, driver_model=driver))
    assert low * MIB <= term.n_bytes <= high * MIB
    assert term.source is Source.ASSUMED and "measured" in term.detail


@pytest.mark.parametrize("backend", [Backend.RPC, Backend.METAL])
def test_no_context_where_it_is_not_ours(backend: Backend) -> None:
    assert driver_context(make_gpu(backend=backend)) == ()


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
