"""What ``measure.py`` and ``compare.py`` share: the machine of a row, the settings of a point, and texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.facts.machine import Backend, Cpu, DriverModel, Engine, Gpu, Machine, Os, Ram
from planner.facts.model import Model
from planner.facts.reading import Reading, Source
from planner.facts.workload import Goal, Workload
from planner.plans.settings import FlashAttn, LoadMode, Settings
from planner.units import MIB
from probes import layer_figures

ROOT = Path(__file__).parents[2]
SHARES = (0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
N_CTX, PROMPT, ANSWER = 4096, 400, 128


def measured(value: float) -> Reading:
    return Reading(value, Source.MEASURED, "benchmarks/pool/measure.py")


def machine_of(row: dict[str, Any], layers: list[Any]) -> Machine:
    """The machine as ``measure.py`` saw it, with the small card that the ballast leaves."""
    gpu = Gpu(
        "CUDA0",
        total_bytes=row["total_bytes"],
        name=row["name"],
        backend=Backend.CUDA,
        driver_model=DriverModel.LINUX,
        used_bytes=row["total_bytes"] - row["free_bytes"],
        free_bytes=row["free_bytes"],
        memory_bps=measured(row["vram_bps"]),
        h2d_pinned_bps=measured(row["pinned_bps"]),
        h2d_pageable_bps=measured(row["pageable_bps"]),
        threads=row.get("gpu_threads"),
    )
    cpu = Cpu(physical_cores=row["threads"], performance_cores=row["threads"], isa=("avx2", "avx512f"))
    return Machine(
        Os.LINUX,
        Ram(row["ram_bytes"], row["ram_bytes"], measured(row["ram_bps"])),
        cpu,
        (gpu,),
        layers=tuple(layer_figures.from_json(layer) for layer in layers),
        engine=Engine("llama.cpp", row["build"], ("cuda",), ("f16:f16",), tuple(row["flags"])),
    )


def workload(**changes: Any) -> Workload:
    base = Workload(n_ctx=N_CTX, prompt_tokens=PROMPT, answer_tokens=ANSWER, goal=Goal.DECODE)
    return replace(base, **changes)


def point(model: Model, threads: int, n_cpu_moe: int, pool_mib: int) -> Settings:
    return Settings(
        n_ctx=N_CTX,
        n_gpu_layers=model.n_layer + 1,
        n_cpu_moe=n_cpu_moe,
        moe_cache_mib=pool_mib,
        n_ubatch=512,
        flash_attn=FlashAttn.ON,
        load_mode=LoadMode.NONE,
        threads=threads,
        threads_batch=threads,
        devices=("CUDA0",),
    )


def points(model: Model, threads: int) -> Iterator[tuple[str, Settings]]:
    """The pool at every share with all experts in RAM."""
    for share in SHARES:
        yield f"pool {share:g}", point(model, threads, model.n_layer, round(share * model.expert_bytes / MIB))


def layers_of(model: Model, threads: int) -> Iterator[tuple[str, Settings]]:
    """Whole layers of a quarter of the bytes."""
    yield "layers 0.25", point(model, threads, round(model.n_layer * 0.75), 0)


def texts() -> tuple[str, str]:
    """Two halves of this repository's English pages: one to record routing on, one for the prompts."""
    pages = [*sorted((ROOT / "docs" / "decisions").glob("*.md")), ROOT / "README.md"]
    pages += sorted((ROOT / "docs" / "rules").glob("*.md"))
    found = [page.read_text(encoding="utf-8") for page in pages]
    return "\n\n".join(found[::2]), "\n\n".join(found[1::2])
