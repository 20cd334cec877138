"""Replay the runs of one 16 GiB card under Windows: is the order right inside a series, and are the plans healthy?

    python benchmarks/replay/evidence.py ../shared/cases/evidence_16gb.jsonl --models FOLDER --machine MACHINE.json

``FOLDER`` holds ``qwen3.8-flash-next.gguf`` and ``qwen3.6-35b-a3b.gguf`` (headers suffice), ``MACHINE`` is the card's
machine file. Rows of a patched engine other than the static pool (staging, promotion, CUDA graphs off, pinned
mapping) are left out: no flag of llama.cpp asks for them. The pool is priced as ``--moe-cache-mib`` of its size.

For every series it prints predicted and measured prefill and decode with their rank correlation; then, for every
context of the table, the plan with what it leaves free, beside the configurations that collapsed.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from sweep import spearman

from planner.cost.evaluate import Evaluator
from planner.cost.model import CostModel
from planner.facts.machine import Machine
from planner.facts.model import Model
from planner.facts.workload import Workload
from planner.gguf.analyze import analyze
from planner.plans.plan import Plan
from planner.plans.rule import Problem
from planner.plans.settings import FlashAttn, LoadMode, Settings, Tool
from planner.search import plan
from planner.units import GIB, MIB
from policies import RULES
from probes.machine_file import load

LAYOUTS = {"Qwen3.8-Flash-Next": "qwen3.8-flash-next", "Qwen3.6-35B-A3B": "qwen3.6-35b-a3b"}
PATCHED = ("STAGING", "promote_threshold", "graphs disabled", "graphs OFF", "REGISTER_HOST", "-ngl 10", "profiling")
CONTEXTS = (2048, 8192, 16384, 32768, 65536)
ANSWER = 500
HEADROOM_MIB = 1024


@dataclass(frozen=True)
class Row:
    """One measured run; sizes in tokens, rates in tokens per second."""

    name: str
    series: str
    layout: str
    n_ctx: int
    n_prompt: int
    settings: Settings
    pp: float | None
    tg: float | None
    collapsed: bool


def rows_of(path: Path) -> list[Row]:
    """Rows that llama.cpp's own flags can say."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        layout = next((name for start, name in LAYOUTS.items() if row["model"].startswith(start)), None)
        patched = any(word.lower() in (row["other_flags"] or "").lower() for word in PATCHED)
        if layout and not patched and (row["decode_tps"] or row["prefill_tps"] or row["collapsed"]):
            found.append(_row(row, layout))
    return found


def _row(row: dict[str, object], layout: str) -> Row:
    def number(key: str, default: int) -> int:
        value = row[key]
        return default if value is None else int(float(str(value)))

    n_prompt = number("n_prompt", 2048)
    n_ctx = number("ctx", n_prompt + ANSWER)
    text = str(row["other_flags"])
    mode = LoadMode.NONE if "--load-mode none" in text else LoadMode.MMAP
    settings = Settings(
        devices=("CUDA0",),
        n_gpu_layers=999,
        n_ctx=n_ctx,
        n_cpu_moe=number("n_cpu_moe", 0),
        n_ubatch=number("ubatch", 512),
        n_batch=max(number("ubatch", 512), 2048),
        type_k=str(row["kv_k"] or "f16"),
        type_v=str(row["kv_v"] or "f16"),
        flash_attn=FlashAttn.ON,
        load_mode=mode,
        moe_cache_mib=number("pool_gib", 0) * GIB // MIB,
        threads=24,
    )
    pp, tg = row["prefill_tps"], row["decode_tps"]
    return Row(
        str(row["id"]), str(row["series"]), layout, n_ctx, n_prompt, settings,
        float(str(pp)) if pp else None, float(str(tg)) if tg else None, bool(row["collapsed"]),
    )  # fmt: skip


def predicted(row: Row, model: Model, machine: Machine) -> tuple[float, float]:
    """Prefill and decode of a row, tok/s."""
    settings = replace(row.settings, n_gpu_layers=model.n_layer + 1)
    work = Workload(prompt_tokens=max(row.n_prompt, 1), answer_tokens=ANSWER)
    speed = Evaluator(CostModel(model, machine, Tool.COMPLETION), work).candidate(settings, ()).speed
    return speed.prefill_tps.mid, speed.decode_tps.mid


def series(rows: list[Row], models: dict[str, Model], machine: Machine) -> None:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if not row.collapsed:
            groups[row.series].append(row)
    for name, members in groups.items():
        print(f"series {name}")
        pairs: dict[str, list[tuple[float, float]]] = {"prefill": [], "decode": []}
        for row in members:
            pp, tg = predicted(row, models[row.layout], machine)
            for kind, found, measured in (("prefill", pp, row.pp), ("decode", tg, row.tg)):
                if measured:
                    pairs[kind].append((found, measured))
                    print(f"  {row.name:42.42s} {kind:8s} {found:8.2f} of {measured:8.2f}")
        for kind, points in pairs.items():
            if len(points) > 2:
                ratio = median(p / m for p, m in points)
                print(f"  {kind}: Spearman {spearman(points):.2f} over {len(points)}, predicted/measured {ratio:.2f}")


def plans(model: Model, machine: Machine, rows: list[Row]) -> None:
    """One plan per context of the table, and whether it reaches a configuration that collapsed."""
    for tokens in CONTEXTS:
        work = Workload(n_ctx=tokens + 1024, prompt_tokens=tokens, answer_tokens=ANSWER)
        found = plan(Problem(machine, model, work), RULES)
        chosen = found.chosen.settings
        free = min(device.headroom_bytes for device in found.chosen.memory.devices) // MIB
        healthy = [r for r in rows if not r.collapsed and r.layout == LAYOUTS["Qwen3.8-Flash-Next"]]
        near = [r for r in healthy if abs(r.n_prompt - tokens) < tokens // 8]
        best = max((r.pp for r in near if r.pp), default=None)
        best_tg = max((r.tg for r in near if r.tg), default=None)
        print(
            f"{tokens:6,d} tokens: -ncmoe {chosen.n_cpu_moe} -ub {chosen.n_ubatch} -ctk {chosen.type_k} "
            f"{chosen.load_mode}, {free:,} MiB free {_beyond(found, rows)}; predicted "
            f"{found.chosen.speed.prefill_tps.mid:.0f} / {found.chosen.speed.decode_tps.mid:.1f} tok/s, "
            f"best healthy rows {best} / {best_tg}"
        )


def _beyond(found: Plan, rows: list[Row]) -> str:
    """Whether a collapsed row asks no more than the plan in context, ubatch, cache and experts on the card."""
    chosen = found.chosen.settings
    for row in rows:
        given = row.settings
        if row.collapsed and row.layout == LAYOUTS["Qwen3.8-Flash-Next"] and given.moe_cache_mib == 0:
            less = given.n_ctx <= chosen.n_ctx and given.n_ubatch <= chosen.n_ubatch
            if less and given.n_cpu_moe >= chosen.n_cpu_moe:
                return f"(beyond {row.name})"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--machine", type=Path, required=True)
    args = parser.parse_args()
    models = {name: analyze(str(args.models / f"{name}.gguf")) for name in LAYOUTS.values()}
    machine = load(args.machine.read_text(encoding="utf-8"), str(args.machine))
    rows = rows_of(args.cases)
    series(rows, models, machine)
    plans(models[LAYOUTS["Qwen3.8-Flash-Next"]], machine, rows)


if __name__ == "__main__":
    main()
