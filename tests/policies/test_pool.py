"""The pool of experts: taken, declined and absent, each with its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.facts.machine import Backend, Engine, Machine
from planner.facts.model import Model
from planner.facts.reading import Reading, Source
from planner.facts.routing import Ground, HitCurve, Phase, Policy, Routing, RoutingStats
from planner.facts.workload import Goal
from planner.plans.decision import Confidence, Fate
from planner.units import MIB
from tests.policies.problems import big_model, card, decision, machine, solved

ENGINE = Engine("llama.cpp", 11549, flags=("--moe-cache-mib",))


def able(free_gib: float = 6, link: float = 24e9, ram: float = 40e9, **gpu: object) -> Machine:
    """A card behind a link, with a llama.cpp that has the pool."""
    rates = {"h2d_pinned_bps": Reading(link, Source.MEASURED), "memory_bps": Reading(7e11, Source.MEASURED)}
    found = machine(card(free_gib, **(rates | gpu)), engine=ENGINE)
    return replace(found, ram=replace(found.ram, read_bps=Reading(ram, Source.MEASURED)))


def recorded(hits: float, ground: Ground = Ground.REPLAY) -> Model:
    """The model with a recording whose replay hits this often at any size."""
    model = big_model()
    routing = Routing("trace", "made", tuple(range(24)), 64, 4, None, Phase(100, ((100,) * 64,) * 24))
    curve = HitCurve(Policy.LRU, ground, ((0.01, hits), (0.99, hits)))
    size = model.expert_bytes
    stats = RoutingStats(routing, "decode", 100, (), (), (), None, (curve,), size, size // 16)
    return replace(model, routing=stats)


def test_taken_where_its_hits_pay() -> None:
    plan = solved(able(), recorded(0.95), goal=Goal.DECODE)
    said = decision(plan, "moe_cache_mib")
    assert said.value == plan.chosen.settings.moe_cache_mib > 0
    assert said.confidence is Confidence.MEASURED
    assert "95% hits expected" in said.headline and "worth it from" in said.headline
    assert said.alternatives[0].value == 0 and said.alternatives[0].outcome is Fate.SLOWER
    assert not plan.chosen.shortfalls
    without = solved(able(), recorded(0.95), goal=Goal.DECODE, pins=(("moe_cache_mib", "0"),))
    assert plan.chosen.speed.decode_tps.mid > 1.1 * without.chosen.speed.decode_tps.mid


def test_declined_with_numbers_where_it_loses() -> None:
    """Few hits over a slow link: the CPU is faster than the uploads."""
    plan = solved(able(link=6e9), recorded(0.2), goal=Goal.DECODE)
    said = decision(plan, "moe_cache_mib")
    assert plan.chosen.settings.moe_cache_mib == said.value == 0
    assert said.headline.startswith("no pool: ") and "worth it from" in said.headline
    assert said.alternatives[0].outcome is Fate.SLOWER and said.alternatives[0].by > 1.0


@pytest.mark.parametrize("free_gib", [1.9, 2.0, 2.1, 2.2, 2.6])
def test_at_least_one_token_or_none(free_gib: float) -> None:
    """With little free beside the headroom there is room for a pool, but not always for one token's experts."""
    plan = solved(able(free_gib), recorded(0.95), goal=Goal.DECODE)
    settings = plan.chosen.settings
    cycle = big_model().expert_bytes * 2 // 64
    assert settings.moe_cache_mib == 0 or settings.moe_cache_mib * MIB >= cycle


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (Engine("llama.cpp", 11434, flags=("-m", "--model")), "b11434 does not list --moe-cache-mib"),
        (Engine("llama.cpp", 11549, flags=("-m", "--model")), "b11549 does not list --moe-cache-mib"),
        (None, "no llama.cpp that lists --moe-cache-mib was found"),
    ],
)
def test_other_builds_are_told_what_a_newer_one_gives(engine: Engine | None, words: str) -> None:
    plan = solved(replace(able(), engine=engine), recorded(0.95), goal=Goal.DECODE)
    said = decision(plan, "moe_cache_mib")
    assert plan.chosen.settings.moe_cache_mib == 0
    assert said.headline.startswith(words) and "tok/s" in said.headline
    assert said.alternatives[0].outcome is Fate.UNSUPPORTED


def test_a_target_build_decides() -> None:
    old = solved(able(), recorded(0.95), goal=Goal.DECODE, target_build=11434)
    new = solved(replace(able(), engine=None), recorded(0.95), goal=Goal.DECODE, target_build=11549)
    assert (old.chosen.settings.moe_cache_mib, new.chosen.settings.moe_cache_mib > 0) == (0, True)


def test_not_beside_ram_nor_over_the_network_nor_without_a_card() -> None:
    for found in (able(unified=True), able(backend=Backend.RPC), machine(engine=ENGINE)):
        plan = solved(found, recorded(0.95), goal=Goal.DECODE)
        assert plan.chosen.settings.moe_cache_mib == 0
        assert not [d for d in plan.decisions if d.rule == "pool"]


def test_without_a_recording_there_is_none_and_the_plan_says_how_to_make_one() -> None:
    plan = solved(able(), goal=Goal.DECODE)
    said = decision(plan, "moe_cache_mib")
    assert plan.chosen.settings.moe_cache_mib == 0
    assert "moeplan routing" in said.headline and said.alternatives[0].outcome is Fate.UNSAFE
    assert said.confidence is Confidence.ASSUMED
    assert any(e.source is Source.ASSUMED and "prior" in e.fact for e in said.because)


def test_steps_down_as_the_context_grows() -> None:
    sizes = []
    for n_ctx in (8192, 65536, 131072):
        plan = solved(able(8), recorded(0.95), goal=Goal.DECODE, n_ctx=n_ctx)
        held = plan.chosen.memory.devices[0]
        sizes.append(sum(t.n_bytes for t in (*held.cache, *held.model)))
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1]


def test_a_pin_is_kept() -> None:
    plan = solved(able(8), recorded(0.2), pins=(("moe_cache_mib", "2048"), ("n_cpu_moe", "24")))
    assert plan.chosen.settings.moe_cache_mib == 2048
    assert decision(plan, "moe_cache_mib").headline.startswith("pinned by you")
