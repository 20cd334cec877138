"""Of unlike cards the faster takes more layers, as far as its headroom stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.facts.machine import Gpu
from planner.facts.reading import Reading, Source
from planner.plans.compare import cost
from planner.plans.plan import Plan
from planner.search.candidates import TIE
from tests.policies.problems import card, machine, solved


def rated(gpu: Gpu, bps: float, flops: float = 70e12) -> Gpu:
    return replace(gpu, memory_bps=Reading(bps, Source.MEASURED), f16_flops=Reading(flops, Source.MEASURED))


def planned(first: float, second: float, *pins: tuple[str, str]) -> Plan:
    """Two cards that hold the whole model between them. Args: first, second: bytes per second of their memory."""
    cards = rated(card(8), first), rated(card(8, id="CUDA1"), second)
    return solved(machine(*cards), n_ctx=4096, prompt_tokens=512, pins=pins)


def layers(plan: Plan) -> dict[str, float]:
    settings = plan.chosen.settings
    return dict(zip(settings.devices, settings.tensor_split, strict=True))


@pytest.mark.parametrize(("fast", "rates"), [("CUDA0", (900e9, 200e9)), ("CUDA1", (200e9, 900e9))])
def test_the_faster_card_takes_more_and_keeps_its_headroom(fast: str, rates: tuple[float, float]) -> None:
    even, plan = planned(500e9, 500e9), planned(*rates)
    assert layers(plan)[fast] > layers(even)[fast] + 1
    assert min(device.headroom_bytes for device in plan.chosen.memory.devices) >= 1 << 30
    split = plan.chosen.settings.tensor_split
    for moved in ((split[0] - 1, split[1] + 1), (split[0] + 1, split[1] - 1)):
        other = planned(
            *rates,
            ("devices", ",".join(plan.chosen.settings.devices)),
            ("tensor_split", ",".join(f"{n:g}" for n in moved)),
            ("n_cpu_moe", "0"),
        )
        goal = plan.workload.goal
        assert other.refusal or cost(other.chosen, goal) >= cost(plan.chosen, goal) * (1.0 - TIE)


def test_cards_that_are_alike_stay_equally_empty() -> None:
    taken = layers(planned(500e9, 500e9))
    assert abs(taken["CUDA0"] - taken["CUDA1"]) <= 1


def test_a_pinned_split_stays() -> None:
    plan = planned(900e9, 200e9, ("devices", "CUDA0,CUDA1"), ("tensor_split", "12,13"), ("n_cpu_moe", "0"))
    assert plan.chosen.settings.tensor_split == (12.0, 13.0)
