"""The engine's figures against ours: same settings, same program, and what a difference leads to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.cost.confirm import RESIDUAL, CorrectedCost, cautions, comparable, compare, missing, repeatable, verdict
from planner.cost.model import CostModel
from planner.facts.allocation import Allocation
from planner.facts.reading import Source
from planner.plans.memory import total
from planner.plans.oracle import Confirmation, Difference
from planner.plans.settings import FlashAttn, LoadMode, Settings, Tool
from planner.units import GIB, MIB
from tests.builders import make_gpu, make_machine, make_model, make_settings

MODEL = make_model(8)
MACHINE = make_machine(make_gpu())


def answer(settings: Settings, surplus: int = 0) -> tuple[Allocation, ...]:
    """What an engine would print that agrees with us, but for ``surplus`` bytes of compute on CUDA0."""
    memory = CostModel(MODEL, MACHINE, Tool.FIT_PARAMS).memory(settings)
    parts = [(d.id, d.model, (*d.context, *d.cache), d.compute) for d in memory.devices]
    parts.append(("Host", memory.host.model, memory.host.context, memory.host.compute))
    return tuple(
        Allocation(
            name,
            total(model) // MIB * MIB,
            total(context) // MIB * MIB,
            (total(compute) + (surplus if name == "CUDA0" else 0)) // MIB * MIB,
        )
        for name, model, context, compute in parts
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_cpu_moe": 4, "n_parallel": 4, "n_ctx": 32768},
        {"devices": (), "n_gpu_layers": 0},
        {"n_cpu_moe": 8, "moe_cache_mib": 64},
        {"n_ubatch": 2048, "flash_attn": FlashAttn.OFF, "kv_offload": False},
    ],
)
def test_agreement_leaves_nothing(changes: dict[str, object]) -> None:
    settings = comparable(make_settings(**changes))
    found = compare(MODEL, MACHINE, settings, answer(settings))
    assert {d.residual_bytes for d in found} == {0}
    assert verdict(found, 11549, stored=False).outcome is Confirmation.CONFIRMED
    assert missing(found) == ()


def test_the_server_is_not_compared_with_another_program() -> None:
    """llama-fit-params reserves 1,024 rows of 200,000 logits, 781 MiB; llama-server one per slot."""
    model, settings = make_model(8, n_vocab=200_000), make_settings(n_ubatch=1024)
    server = total(CostModel(model, MACHINE, Tool.SERVER).memory(settings).devices[0].compute)
    said = Allocation("CUDA0", 0, 0, server + 781 * MIB)
    found = compare(model, MACHINE, comparable(settings), (said,))
    [compute] = [d for d in found if (d.device, d.term) == ("CUDA0", "compute")]
    assert compute.within
    assert compute.predicted_bytes > server + 600 * MIB


def test_only_what_no_figure_depends_on_is_left_out() -> None:
    settings = make_settings(
        threads=7, threads_batch=9, cache_ram_mib=4096, ctx_checkpoints=5, kv_unified=True, spec_type="draft-mtp",
        load_mode=LoadMode.MMAP, repack=True, n_cpu_moe=3, n_parallel=2, override_tensor=(("x", "CPU"),),
    )  # fmt: skip
    same = comparable(settings)
    assert comparable(replace(settings, threads=1, cache_ram_mib=0)) == same
    assert (same.repack, same.load_mode, same.spec_type, same.kv_unified) == (False, LoadMode.NONE, None, False)
    for name in ("n_ctx", "n_gpu_layers", "n_cpu_moe", "n_parallel", "override_tensor", "devices", "n_ubatch"):
        assert getattr(same, name) == getattr(settings, name)


def test_a_split_by_free_memory_is_not_asked_for_later() -> None:
    two = make_settings(devices=("CUDA0", "CUDA1"))
    assert repeatable(make_settings())
    assert not repeatable(two) and not repeatable(replace(two, tensor_split=(0.0, 0.0)))
    assert repeatable(replace(two, tensor_split=(1.0, 2.0)))


@pytest.mark.parametrize(
    ("term", "engine", "predicted", "within"),
    [
        ("model", 1000, 1000, True),
        ("model", 1001, 1000, True),
        ("context", 999, 1000, True),
        ("model", 1002, 1000, False),
        ("context", 998, 1000, False),
        ("compute", 116, 100, True),
        ("compute", 117, 100, False),
        ("compute", 2000, 1960, True),
        ("compute", 2000, 1959, False),
        ("compute", 100, 400, True),
    ],
)
def test_tolerance(term: str, engine: int, predicted: int, within: bool) -> None:
    assert Difference("CUDA0", term, engine * MIB, predicted * MIB).within is within


def test_a_device_that_only_one_of_them_knows_is_a_difference() -> None:
    settings = comparable(make_settings())
    rows = (*answer(settings), Allocation("CUDA7", 5 * MIB, 0, 0))
    found = compare(MODEL, MACHINE, settings, rows)
    assert missing(found) == (("CUDA7", 5 * MIB),)
    less = compare(MODEL, MACHINE, settings, (Allocation("Host", 0, 0, 0),))
    assert verdict(less, 1, stored=False).outcome is Confirmation.DISAGREES
    assert missing(less) == ()


def test_more_than_predicted_is_said_with_both_numbers() -> None:
    settings = comparable(make_settings())
    found = compare(MODEL, MACHINE, settings, answer(settings, 300 * MIB))
    oracle = verdict(found, 11549, stored=False)
    assert (oracle.outcome, oracle.residual_bytes) == (Confirmation.DISAGREES, 300 * MIB)
    assert missing(found) == (("CUDA0", 300 * MIB),)
    [compute] = [d for d in found if (d.device, d.term) == ("CUDA0", "compute")]
    [said] = cautions(replace(oracle, reserved=missing(found)))
    assert said.code == "oracle-disagrees"
    theirs, ours = compute.engine_bytes // MIB, compute.predicted_bytes // MIB
    assert f"llama.cpp b11549 counts otherwise: CUDA0 compute {theirs} MiB (predicted {ours} MiB)." in said.message
    assert "300 MiB of CUDA0 are set aside" in said.message
    assert "Host" not in said.message


def test_the_residual_is_a_measured_overhead_of_every_candidate() -> None:
    extra = (("CUDA0", 300 * MIB), ("Host", 7 * MIB), ("CUDA7", GIB))
    plain, corrected = CostModel(MODEL, MACHINE), CorrectedCost(MODEL, MACHINE, Tool.SERVER, extra)
    for settings in (make_settings(), make_settings(n_cpu_moe=5)):
        for compute in (True, False):
            before, after = plain.memory(settings, compute=compute), corrected.memory(settings, compute=compute)
            [device], [old] = after.devices, before.devices
            assert device.predicted_bytes - old.predicted_bytes == 300 * MIB
            assert device.headroom_bytes == old.headroom_bytes - 300 * MIB
            assert (device.overhead[-1].name, device.overhead[-1].source) == (RESIDUAL, Source.MEASURED)
            assert after.host.predicted_bytes - before.host.predicted_bytes == 7 * MIB
    on_cpu = make_settings(devices=(), n_gpu_layers=0)
    assert corrected.memory(on_cpu).devices == ()
    assert CorrectedCost(MODEL, MACHINE, Tool.SERVER, ()).memory(on_cpu) == plain.memory(on_cpu)
