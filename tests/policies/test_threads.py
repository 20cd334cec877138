from dataclasses import replace

from planner.facts.machine import Cpu
from planner.facts.reading import Reading, Source
from tests.policies.problems import card, decision, machine, solved


def test_performance_cores_not_siblings() -> None:
    plan = solved(machine(card(6)))
    assert (plan.chosen.settings.threads, plan.chosen.settings.threads_batch) == (8, 8)
    assert decision(plan, "threads").alternatives[0].value == 24


def test_physical_cores_without_the_distinction() -> None:
    found = replace(machine(card(6)), cpu=Cpu(physical_cores=6, logical_cores=12))
    assert solved(found).chosen.settings.threads == 6


def test_abstains_when_the_cores_are_not_known() -> None:
    plan = solved(replace(machine(card(6)), cpu=Cpu()))
    assert plan.chosen.settings.threads is None
    assert "cores-unknown" in [c.code for c in plan.cautions]
    assert not [d for d in plan.decisions if d.rule == "threads"]


def test_threads_that_fill_ram_are_evidence_and_no_limit() -> None:
    found = machine(card(6))
    found = replace(found, cpu=replace(found.cpu, read_threads=Reading(3.0, Source.MEASURED)))
    plan = solved(found)
    assert plan.chosen.settings.threads == 8
    said = [evidence for evidence in decision(plan, "threads").because if evidence.unit == "threads"]
    assert [(evidence.value, evidence.source) for evidence in said] == [(3.0, Source.MEASURED)]


def test_nothing_waits_for_ram_when_everything_is_on_the_gpu() -> None:
    plan = solved(machine(card(20)))
    assert plan.chosen.settings.n_cpu_moe == 0
    for name in ("threads", "threads_batch"):
        said = decision(plan, name)
        assert "no weight is multiplied on the CPU" in said.headline
        assert said.alternatives == ()


def test_experts_in_ram_and_plans_without_a_gpu_wait_for_it() -> None:
    for found in (machine(card(6)), machine()):
        plan = solved(found)
        assert "decode waits for RAM" in decision(plan, "threads").headline
        assert "on the same cores" in decision(plan, "threads_batch").headline
