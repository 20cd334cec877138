"""Replay the runs of one 16 GiB card under Windows: is the order right inside a series, and are the plans healthy?

    python benchmarks/replay/evidence.py ../shared/cases/evidence_16gb.jsonl --models FOLDER --machine MACHINE.json

``FOLDER`` holds ``qwen3.8-flash-next.gguf`` and ``qwen3.6-35b-a3b.gguf`` (headers suffice), ``MACHINE`` is the card's
machine file. Rows of a patched engine other than the static pool (staging, promotion, CUDA graphs off, pinned
mapping) are left out: no flag of llama.cpp asks for them.

Two things are added here that no plan for llama-server holds, from the same source:

- The static pool is another engine than ``--moe-cache-mib``: chosen experts stay, the CPU computes the others. Its
  rows are priced as the plan without a pool, plus 7.8 ms a token, less 0.084 ms per hit at the hit rate measured.
- The author's runs start cold and do not warm up: touching the mapped experts for the first time takes 7 to 10 s of the
  prompt (the constant part of ``state-build``, ``prefill-v1-chunk`` and ``native-ctx-sweep`` over the length of the
  prompt). llama-server and llama-bench warm up before they measure.

For every series it prints predicted and measured prefill and decode with their rank correlation over settings: rows
that are predicted alike are repeats of one setting and count once, by their median; a series of repeats has no rank.
Rows of two builds are two series. Then, for every context of the table, two builds and an unknown one, the plan
with what it leaves free, beside the configurations that collapsed.
"""

from __future__ import annotations

import argparse
import json
import re
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
from planner.units import MIB
from policies import RULES
from probes.machine_file import load

LAYOUTS = {"Qwen3.8-Flash-Next": "qwen3.8-flash-next", "Qwen3.6-35B-A3B": "qwen3.6-35b-a3b"}
PATCHED = ("STAGING", "promote_threshold", "graphs disabled", "graphs OFF", "REGISTER_HOST", "-ngl 10", "profiling")
CONTEXTS = (2048, 8192, 16384, 32768, 65536)
ANSWER = 500
BUILDS = (11549, 10666, None)
OWN = ("4e97ac86", "2d4f3154")
"""Commits that the author's own program was built on."""

FIRST_TOUCH_BPS = 7e9
POOL_S, HIT_S = 7.8e-3, 0.084e-3
POOL_HITS = ((0, 0.0), (4, 0.285), (6, 0.411), (8, 0.501))
"""GiB of the static pool → share of a token's experts found in it."""


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
    pool_gib: int
    build: str
    cold: bool
    """Of the author's own program, which does not warm up."""


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
    told = re.search(r"equals the v1 u(\d+) result", str(row["note"]))
    ubatch = number("ubatch", int(told[1]) if told else 512)
    settings = Settings(
        devices=("CUDA0",),
        n_gpu_layers=999,
        n_ctx=n_ctx,
        n_cpu_moe=number("n_cpu_moe", 0),
        n_ubatch=ubatch,
        n_batch=max(ubatch, 2048),
        type_k=str(row["kv_k"] or "f16"),
        type_v=str(row["kv_v"] or "f16"),
        flash_attn=FlashAttn.ON,
        load_mode=mode,
        threads=24,
    )
    pp, tg = row["prefill_tps"], row["decode_tps"]
    return Row(
        str(row["id"]), str(row["series"]), layout, n_ctx, n_prompt, settings,
        float(str(pp)) if pp else None, float(str(tg)) if tg else None, bool(row["collapsed"]),
        number("pool_gib", 0), str(row["llama_cpp_build"]), any(word in str(row["llama_cpp_build"]) for word in OWN),
    )  # fmt: skip


def predicted(row: Row, model: Model, machine: Machine) -> tuple[float, float]:
    """Prefill and decode of a row, tok/s, in its own engine: see above."""
    settings = replace(row.settings, n_gpu_layers=model.n_layer + 1)
    work = Workload(prompt_tokens=max(row.n_prompt, 1), answer_tokens=ANSWER)
    speed = Evaluator(CostModel(model, machine, Tool.COMPLETION), work).candidate(settings, ()).speed
    prompt_s = work.prompt_tokens / speed.prefill_tps.mid + (model.expert_bytes / FIRST_TOUCH_BPS if row.cold else 0.0)
    token_s = 1.0 / speed.decode_tps.mid
    if row.pool_gib:
        hits = dict(POOL_HITS)[row.pool_gib] * model.n_expert_used * model.n_layer
        token_s += POOL_S - HIT_S * hits
    return work.prompt_tokens / prompt_s, 1.0 / token_s


def series(rows: list[Row], models: dict[str, Model], machine: Machine) -> None:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if not row.collapsed:
            groups[f"{row.series}, {row.build.split(' (')[0]}"].append(row)
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
            if len(points) > 1:
                print(f"  {kind}: {rank(points)}, predicted/measured {median(p / m for p, m in points):.2f}")


def rank(points: list[tuple[float, float]]) -> str:
    """Rank correlation over settings: rows predicted alike repeat one and count by their median."""
    groups: dict[str, list[float]] = defaultdict(list)
    for found, measured in points:
        groups[f"{found:.3g}"].append(measured)
    settings = [(float(found), median(measured)) for found, measured in groups.items()]
    if len(settings) < 3:
        return f"{len(points)} rows of {len(settings)} settings, no rank"
    return f"Spearman {spearman(settings):.2f} over {len(settings)} settings ({len(points)} rows)"


def plans(model: Model, machine: Machine, rows: list[Row]) -> None:
    """One plan per context of the table, and whether it reaches a configuration that collapsed."""
    assert machine.engine is not None
    build = f"b{machine.engine.build}" if machine.engine.build else "unknown build"
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
            f"{build} {tokens:6,d} tokens: -ncmoe {chosen.n_cpu_moe} -ub {chosen.n_ubatch} -ctk {chosen.type_k} "
            f"{chosen.load_mode}, {free:,} MiB free {_beyond(found, rows)}; predicted "
            f"{found.chosen.speed.prefill_tps.mid:.0f} / {found.chosen.speed.decode_tps.mid:.1f} tok/s, "
            f"best healthy rows {best} / {best_tg}"
        )


def _beyond(found: Plan, rows: list[Row]) -> str:
    """Whether a collapsed row asks no more than the plan in context, ubatch, cache and experts on the card."""
    chosen = found.chosen.settings
    for row in rows:
        given = row.settings
        if row.collapsed and row.layout == LAYOUTS["Qwen3.8-Flash-Next"] and row.pool_gib == 0:
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
    assert machine.engine is not None
    for build in BUILDS:
        plans(
            models[LAYOUTS["Qwen3.8-Flash-Next"]], replace(machine, engine=replace(machine.engine, build=build)), rows
        )


if __name__ == "__main__":
    main()
