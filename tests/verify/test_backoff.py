from __future__ import annotations

from dataclasses import replace

from planner import search
from planner.plans.plan import Candidate, Plan
from planner.plans.settings import LoadMode, Settings
from planner.verify.backoff import neighbours
from policies import RULES
from tests.policies.problems import card, machine, solved


def safer(plan: Plan, **changes: object) -> list[tuple[dict[str, object], Candidate]]:
    pricing = search.pricing(plan, RULES)
    current = pricing.candidate(replace(plan.chosen.settings, **changes))  # type: ignore[arg-type]
    return [(dict(c), found) for c, found in neighbours(pricing.problem, current, pricing.candidate)]


def test_a_smaller_pool_goes_first_then_the_ubatch_then_a_block() -> None:
    plan = solved(machine(card(12)), pins=(("n_cpu_moe", "20"),))
    plan = replace(plan, workload=replace(plan.workload, pins=()))
    steps = [next(iter(changes)) for changes, _ in safer(plan, moe_cache_mib=2048)]
    assert steps[0] == "moe_cache_mib"
    assert steps.index("n_ubatch") < steps.index("n_cpu_moe")
    assert safer(plan, moe_cache_mib=2048)[0][0] == {"moe_cache_mib": 1024}
    assert safer(plan, moe_cache_mib=1024)[0][0] == {"moe_cache_mib": 0}


def test_every_step_asks_less_of_the_device() -> None:
    plan = solved(machine(card(8)))
    before = plan.chosen.memory.devices[0].predicted_bytes
    found = safer(plan)
    assert found
    assert all(candidate.memory.devices[0].predicted_bytes < before * 0.99 for _, candidate in found)


def test_without_a_device_it_is_ram_that_counts() -> None:
    plan = solved(machine(), pins=(("load_mode", "none"),))
    plan = replace(plan, workload=replace(plan.workload, pins=()))
    found = safer(plan)
    assert {"load_mode": LoadMode.MMAP} in [changes for changes, _ in found]
    needed = plan.chosen.memory.host.unevictable_bytes
    assert all(candidate.memory.host.unevictable_bytes < needed for _, candidate in found)


def test_a_pinned_setting_is_no_way_back() -> None:
    plan = solved(machine(card(8)), pins=(("n_ubatch", "512"),))
    assert all("n_ubatch" not in changes for changes, _ in safer(plan))


def test_the_end_of_the_way() -> None:
    """Everything on the CPU, mapped, without a cache, at the smallest ubatch: nothing is left to give up."""
    plan = solved(machine())
    least: dict[str, object] = {"load_mode": LoadMode.MMAP, "cache_ram_mib": 0, "n_ubatch": 64}
    assert safer(plan, **least) == []
    assert isinstance(plan.chosen.settings, Settings)
