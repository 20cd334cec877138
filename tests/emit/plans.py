"""Plans built by hand: one that fits, one that is refused, a user's own flags."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.facts.machine import Engine, Machine
from planner.facts.model import Model
from planner.facts.reading import Reading, Source
from planner.facts.workload import Workload
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, Fate
from planner.plans.memory import DeviceMemory, HostMemory, Memory, Term
from planner.plans.plan import Candidate, Caution, Exchange, Plan, Refusal, Shortfall, Verdict
from planner.plans.settings import FlashAttn, LoadMode, Settings
from planner.plans.speed import Band, Resource, Speed
from planner.units import GIB, MIB
from tests.builders import make_gpu, make_machine, make_model, make_settings

NASTY = (
    "two  spaces.gguf",
    'it\'s "quoted" $HOME `id` \\ back.gguf',
    "line\nbreak.gguf",
    "escape\x1b[31m\x07 tab\tdel\x7f.gguf",
    "bidi\u202eabc\u2066 \u0085 ünï-\U0001f600.gguf",
    "\u2018curly\u2019 \u201aquotes\u201b.gguf",
    "-starts-with-dash.gguf",
    "*?[a]{b,c};&|<>(){}!#~%^=@.gguf",
)


def make_speed(mid: float = 40.0) -> Speed:
    return Speed(Band(mid * 0.8, mid, mid * 1.2), Band(800.0, 1000.0, 1200.0), Band(14.0, 16.9, 20.0), Resource.RAM)


def make_memory(settings: Settings, machine: Machine) -> Memory:
    """2 GiB of everything on each device; the host maps or pins 1 GiB of weights."""

    def term(name: str, n_bytes: int, detail: str = "by hand") -> tuple[Term, ...]:
        return (Term(name, n_bytes, Source.DERIVED, detail),)

    gpus = {gpu.id: gpu for gpu in machine.gpus}
    devices = tuple(
        DeviceMemory(
            device,
            gpus[device].total_bytes,
            gpus[device].used_bytes or 0,
            model=term("weights expert", 1024 * MIB) + term("weights attention", 512 * MIB),
            context=term("KV full", 256 * MIB),
            compute=term("logits", 128 * MIB),
            overhead=term("cuda context", 128 * MIB),
        )
        for device in settings.devices
    )
    host = HostMemory(
        model=term("weights expert", 1024 * MIB),
        compute=term("inputs", 64 * MIB),
        overhead=term("prompt cache (-cram)", settings.cache_ram_mib * MIB),
        pinned_bytes=1088 * MIB,
        available_bytes=machine.ram.available_bytes,
    )
    return Memory(devices, host)


def make_candidate(settings: Settings, machine: Machine, **changes: Any) -> Candidate:
    base = Candidate(settings, make_memory(settings, machine), make_speed(), Verdict.FITS)
    return replace(base, **changes)


def measured_machine(**changes: Any) -> Machine:
    """One card and a llama.cpp b11549; every rate is known."""
    gpu = make_gpu(
        memory_bps=Reading(500e9, Source.MEASURED),
        h2d_pinned_bps=Reading(23e9, Source.MEASURED),
        h2d_pageable_bps=Reading(14e9, Source.MEASURED),
        f16_flops=Reading(60e12, Source.REPORTED),
    )
    machine = make_machine(gpu, engine=Engine("llama.cpp", 11549, ("cuda",)))
    ram = replace(machine.ram, read_bps=Reading(60e9, Source.MEASURED))
    return replace(machine, ram=ram, **changes)


def make_decision(**changes: Any) -> Decision:
    base = Decision(
        "experts",
        "n_cpu_moe",
        2,
        "experts of the first 2 blocks in RAM",
        Confidence.DERIVED,
        (Evidence("all experts", 3 * GIB, "bytes", Source.REPORTED),),
        (Alternative(1, Fate.DOES_NOT_FIT, 1048576.0, "CUDA0 would be 1 MiB short"),),
    )
    return replace(base, **changes)


def make_plan(model: Model | None = None, machine: Machine | None = None, **changes: Any) -> Plan:
    """A plan with one decision, a caution and an exchange rate; settings by ``settings=``."""
    model, machine = model or make_model(), machine or measured_machine()
    settings = changes.pop("settings", None) or make_settings(
        n_gpu_layers=5, n_cpu_moe=2, flash_attn=FlashAttn.ON, load_mode=LoadMode.NONE
    )
    base = Plan(
        machine,
        model,
        Workload(),
        make_candidate(settings, machine),
        decisions=(make_decision(),),
        exchange=(Exchange("n_ctx 8,192", "decode -2%"),),
        cautions=(Caution("example", "Mind the gap."),),
    )
    return replace(base, **changes)


def refused_plan() -> Plan:
    """CUDA0 lacks 2 GiB; half the context would fit."""
    plan = make_plan()
    small = replace(plan.chosen, settings=replace(plan.chosen.settings, n_ctx=2048))
    shortfalls = (Shortfall("CUDA0", 6 * GIB, 4 * GIB),)
    return replace(
        plan,
        chosen=replace(plan.chosen, shortfalls=shortfalls),
        refusal=Refusal(shortfalls, small, "no placement keeps the headroom"),
    )
