"""What both memory benchmarks share: settings of a case, the predicted MiB, tolerances and the table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.cost.model import CostModel
from planner.facts.machine import Backend, Gpu, Machine, Os, Ram
from planner.facts.model import Model
from planner.plans.memory import total
from planner.plans.settings import FlashAttn, LoadMode, Settings, Tool
from planner.units import GIB, MIB

TERMS = ("model", "context", "compute")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: llama.cpp's whole MiB (rounded down) against ours."""

    case: str
    device: str
    term: str
    truth_mib: int
    ours_mib: float
    small: bool = False

    @property
    def error_mib(self) -> float:
        return self.ours_mib - self.truth_mib

    @property
    def within(self) -> bool:
        """Model and context to the MiB; compute never under by more than 2 % or 16 MiB, over by at most 8 % or
        48 MiB (30 % on the small test architectures)."""
        if self.term != "compute":
            return -1 <= self.error_mib < 2
        over = 0.30 if self.small else 0.08
        return -max(0.02 * self.truth_mib, 16) <= self.error_mib <= max(over * self.truth_mib, 48)


def settings_of(case: dict[str, Any], devices: tuple[str, ...]) -> Settings:
    """A case's flags, as llama-fit-params was given them (``-nr``, load mode none)."""
    return Settings(
        n_ctx=case["ctx"],
        n_gpu_layers=case.get("ngl", 999),
        n_cpu_moe=case["n_cpu_moe"],
        n_ubatch=case["ubatch"],
        n_batch=case.get("batch", max(2048, case["ubatch"])),
        type_k=case["ctk"],
        type_v=case["ctv"],
        flash_attn=FlashAttn(case["fa"]),
        n_parallel=case.get("n_parallel", 1),
        kv_unified=case.get("kv_unified", False),
        kv_offload=not case.get("nkvo", False),
        devices=devices,
        load_mode=LoadMode.NONE,
        repack=False,
    )


def machine_of(device: str | None) -> Machine:
    """A large machine: placement, not fit, is asked."""
    backend = Backend.RPC if device and device.startswith("RPC") else Backend.CUDA
    gpus = () if device is None else (Gpu(id=device, total_bytes=512 * GIB, backend=backend, used_bytes=0),)
    return Machine(Os.LINUX, Ram(2048 * GIB), gpus=gpus)


def label(case: dict[str, Any]) -> str:
    """The flags of a case that matter, in words."""
    shown = ["ctx", "ubatch", "ctk", "fa", "n_cpu_moe"]
    shown += [key for key, usual in (("ngl", 999), ("n_parallel", 1)) if case.get(key, usual) != usual]
    return " ".join(f"{k} {case[k]}" for k in shown if k in case) + (" nkvo" if case.get("nkvo") else "")


def recorded(path: Path) -> list[dict[str, Any]]:
    """Cases of a file that llama.cpp answered: with quantised caches granite-3.1-1b-a400m aborts in it."""
    return [case for case in map(json.loads, path.read_text().splitlines()) if "mib" in case]


def compare(
    name: str, model: Model, case: dict[str, Any], truth: dict[str, dict[str, int]], *, small: bool
) -> list[Row]:
    """All figures of one case; ``truth`` is device (or ``Host``) → term → MiB."""
    device = next((d for d in truth if d != "Host"), None)
    cost = CostModel(model, machine_of(device), Tool.FIT_PARAMS)
    memory = cost.memory(settings_of(case, () if device is None else (device,)))
    ours = {d.id: d for d in memory.devices} | {"Host": memory.host}
    return [
        Row(f"{name}: {label(case)}", where, term, mib[term], total(getattr(ours[where], term)) / MIB, small)
        for where, mib in truth.items()
        for term in TERMS
    ]


def report(rows: Iterable[Row], *, verbose: bool) -> int:
    """Print rows outside the tolerance (or all), then a summary per term; returns how many are outside."""
    rows = list(rows)
    for row in rows:
        if verbose or not row.within:
            mark = " " if row.within else "*"
            figures = f"{row.truth_mib:8,d} {row.ours_mib:10,.1f} {row.error_mib:+9.1f}"
            print(f"{mark} {row.device:6} {row.term:8} {figures}  {row.case}")
    print("\nterm      figures  outside  worst under  worst over  MiB")
    for term in TERMS:
        errors = [row.error_mib for row in rows if row.term == term]
        outside = sum(not row.within for row in rows if row.term == term)
        if errors:
            print(f"{term:8} {len(errors):8,d} {outside:8,d} {min(errors):+12.1f} {max(errors):+11.1f}")
    return sum(not row.within for row in rows)
