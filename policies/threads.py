"""How many CPU threads."""

from __future__ import annotations

from typing import Final

from planner.cost.host_share import computes_on_host
from planner.facts.machine import Cpu
from planner.facts.reading import Source
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, Fate, RuleDoc
from planner.plans.plan import Candidate, Caution, Verdict
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule

DOC = RuleDoc(
    id="threads",
    title="One thread per physical performance core, never one per SMT sibling",
    settings=("threads", "threads_batch"),
    what=(
        "Decode and batch threads are the physical performance cores; without that distinction, the physical "
        "cores; without any count, the flag is left to llama.cpp. A container's CPU limit caps the count."
    ),
    why=(
        "Decode waits for memory, so SMT siblings add contention and no bandwidth. The error is lopsided: a few "
        "threads too few cost little, threads beyond the physical cores cost most of the speed. An efficiency "
        "core makes every barrier wait for it. Fewer threads than cores may already read RAM at its full rate; that "
        "is measured and shown, but no reason to use fewer: unpacking quantised weights keeps more cores busy."
    ),
    numbers=(
        ("2 threads read f32 weights best where 4 are 58 % faster in decode", "BigMoeOnEdge probe notes"),
        ("-t 48 on 32 cores -69 %, 8 instead of 16 -9.6 %", "noonghunna/club-3090 thread notes"),
        (
            "4/8/12/16 threads: 16.4/23.9/36.7/41.7 tok/s with all experts in RAM",
            "16 cores, llama.cpp b11434",
        ),
    ),
    abstains="The number of cores is not known.",
    references=("common/common.cpp (b11312): llama.cpp counts physical performance cores itself",),
)


_IDLE: Final = "no weight is multiplied on the CPU, so the number hardly matters"


def _cores(cpu: Cpu) -> tuple[int, str] | None:
    fast, all_ = cpu.performance_cores, cpu.physical_cores
    if fast and fast != all_:
        return fast, "performance cores"
    return (all_, "physical cores") if all_ else None


def _waits(chosen: Candidate) -> str:
    what = "the disk" if chosen.verdict is Verdict.PAGES else "RAM"
    return f"decode waits for {what}, more would only contend"


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Decide ``threads`` and ``threads_batch``, or leave both to llama.cpp with a caution."""
    cores = _cores(problem.machine.cpu)
    if cores is None:
        note = "The number of CPU cores is not known; llama.cpp chooses the threads itself."
        return Proposal(cautions=(Caution("cores-unknown", note),))
    return Proposal(domains=(("threads", (cores[0],)), ("threads_batch", (cores[0],))))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """Both thread counts with the core counts behind them."""
    cpu, settings = problem.machine.cpu, chosen.settings
    cores = _cores(cpu)
    if cores is None or settings.threads is None:
        return ()
    evidence = tuple(
        Evidence(name, value, "cores", Source.REPORTED)
        for name, value in (
            ("physical cores", cpu.physical_cores),
            ("performance cores", cpu.performance_cores),
            ("logical cores", cpu.logical_cores),
        )
        if value is not None
    )
    if cpu.read_threads is not None:
        read = cpu.read_threads
        evidence += (Evidence("threads that read RAM at its full rate", read.value, "threads", read.source),)
    losers: tuple[Alternative, ...] = ()
    busy = computes_on_host(problem.model, settings) or not settings.kv_offload
    if busy and cpu.logical_cores and cpu.logical_cores > settings.threads:
        losers = (Alternative(cpu.logical_cores, Fate.SLOWER, None, "more threads than cores: up to -69 % measured"),)
    return tuple(
        Decision(
            "threads",
            name,
            value,
            f"the {cores[1]}; {reason}",
            Confidence.DERIVED,
            evidence,
            losers,
        )
        for name, value, reason in (
            ("threads", settings.threads, _waits(chosen) if busy else _IDLE),
            ("threads_batch", settings.threads_batch, "prompts are computed on the same cores" if busy else _IDLE),
        )
    )


RULE = Rule(DOC, propose, explain)
