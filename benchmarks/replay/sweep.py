"""Replay a sweep of llama-bench on one GPU: is the order right, and is the plan as fast as the best row?

    python benchmarks/replay/sweep.py ../shared/cases/gpu_sweep.jsonl --models FOLDER

``FOLDER`` holds the layouts as ``MODEL.gguf`` (headers suffice). For every sweep it prints

- rank correlation (Spearman) of predicted and measured prefill and decode over the rows, and the median ratio;
- for two workloads the plan's turn read off the measured rows, against the best row that leaves 1 GiB and against
  the row that llama.cpp's own ``--fit`` chose.

A turn is read off like this: prefill of the rows with the plan's ubatch and load mode (else the nearest smaller
ubatch), between the two nearest ``ncmoe``; decode between the two nearest ``ncmoe`` over all rows, since decode does
not depend on the ubatch. Rows with more ``ncmoe`` than any row are read at the last one.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from planner.cost.evaluate import Evaluator
from planner.cost.model import CostModel
from planner.facts.machine import Backend, Cpu, Engine, Gpu, Machine, Os, Ram
from planner.facts.model import Model
from planner.facts.reading import Reading, Source
from planner.facts.workload import Workload
from planner.gguf.analyze import analyze
from planner.plans.rule import Problem
from planner.plans.settings import FlashAttn, LoadMode, Settings, Tool
from planner.search import plan
from planner.units import GIB, MIB
from policies import RULES

HEADROOM_MIB = 1024
WORKLOADS = ((4096, 512), (16384, 256))


@dataclass(frozen=True)
class Row:
    """One measured setting."""

    tag: str
    settings: dict[str, object]
    pp: float | None
    tg: float | None
    peak_mib: int | None

    @property
    def n_cpu_moe(self) -> int:
        return int(str(self.settings.get("ncmoe", 0)))

    @property
    def n_ubatch(self) -> int:
        return int(str(self.settings.get("ub", 512)))

    @property
    def plain(self) -> bool:
        """Differs from others in ``ncmoe``, ubatch and load mode only, at depth 0."""
        return not {"ot", "nopo", "t", "d"} & set(self.settings)


@dataclass(frozen=True)
class Sweep:
    """One machine, one model, many settings."""

    name: str
    model: str
    machine: Machine
    free_mib: int
    rows: tuple[Row, ...]


def sweeps(path: Path) -> list[Sweep]:
    groups: dict[str, list[dict[str, object]]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        groups[row["sweep"]].append(row)
    return [_sweep(name, rows) for name, rows in groups.items()]


def _sweep(name: str, rows: list[dict[str, object]]) -> Sweep:
    host = next(r for r in rows if r["kind"] == "machine")
    total_mib = next(int(str(r["total_mib"])) for r in rows if r["kind"] == "ballast")
    free_mib = int(str(rows[0]["free_mib"]))
    return Sweep(
        name=name,
        model=str(rows[0]["model"]),
        machine=_machine(host, total_mib, free_mib),
        free_mib=free_mib,
        rows=tuple(_row(r) for r in rows if r["kind"] == "bench"),
    )


def _machine(host: dict[str, object], total_mib: int, free_mib: int) -> Machine:
    def rate(key: str) -> Reading:
        return Reading(1e9 * float(str(host[key])), Source.MEASURED)

    gpu = Gpu(
        id="CUDA0",
        name="NVIDIA H200",
        backend=Backend.CUDA,
        total_bytes=total_mib * MIB,
        used_bytes=(total_mib - free_mib) * MIB,
        memory_bps=Reading(4.8e12, Source.REPORTED, "published"),
        f16_flops=Reading(989e12, Source.REPORTED, "published"),
        h2d_pinned_bps=rate("h2d_pinned_gbs"),
        h2d_pageable_bps=rate("h2d_pageable_gbs"),
    )
    return Machine(
        os=Os.LINUX,
        cpu=Cpu(physical_cores=int(str(host["threads"])), isa=("avx2", "avx512f")),
        ram=Ram(total_bytes=128 * GIB, available_bytes=110 * GIB, read_bps=rate("ram_read_gbs")),
        gpus=(gpu,),
        engine=Engine(kind="llama.cpp", build=11549, backends=("cuda",)),
    )


def _row(row: dict[str, object]) -> Row:
    found = row.get("result", row)
    assert isinstance(found, dict)
    settings = row["settings"]
    assert isinstance(settings, dict)
    peak = row.get("peak_mib")
    pp, tg = found.get("pp", found.get("pp_tps")), found.get("tg", found.get("tg_tps"))
    return Row(str(row.get("tag") or ""), settings, pp, tg, int(str(peak)) if peak else None)


def settings_of(row: Row, model: Model) -> Settings:
    """The row's llama-bench flags as settings."""
    given = row.settings
    rules = [part.rsplit("=", 1) for part in str(given.get("ot") or "").split(";") if part]
    return Settings(
        devices=("CUDA0",),
        n_gpu_layers=min(int(str(given.get("ngl", 99))), model.n_layer + 1),
        n_cpu_moe=row.n_cpu_moe,
        override_tensor=tuple((pattern, device) for pattern, device in rules),
        n_ubatch=row.n_ubatch,
        n_batch=int(str(given.get("b", 2048))),
        n_ctx=int(str(given.get("p", 0))) + int(str(given.get("n", 0))) + int(str(given.get("d", 0))),
        type_k=str(given.get("ctk", "f16")),
        type_v=str(given.get("ctv", "f16")),
        flash_attn=FlashAttn.ON,
        load_mode=LoadMode(str(given.get("lm", "mmap"))),
        op_offload=not given.get("nopo"),
        threads=int(str(given["t"])) if "t" in given else None,
    )


def predicted(sweep: Sweep, model: Model, row: Row) -> tuple[float | None, float | None]:
    """Prefill and decode of a row, tok/s; None where the row measured none."""
    prompt, answer, depth = (int(str(row.settings.get(key, 0))) for key in ("p", "n", "d"))
    settings = settings_of(row, model)
    cost = CostModel(model, sweep.machine, Tool.BENCH)
    pp = Evaluator(cost, Workload(prompt_tokens=prompt or 1, answer_tokens=1)).candidate(settings, ())
    tg = Evaluator(cost, Workload(prompt_tokens=depth or 1, answer_tokens=answer or 1)).candidate(settings, ())
    return pp.speed.prefill_tps.mid if row.pp else None, tg.speed.decode_tps.mid if row.tg else None


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Rank correlation; ties share their mean rank."""
    first, second = (_ranks([pair[i] for pair in pairs]) for i in (0, 1))
    middle = (len(pairs) - 1) / 2
    top = sum((a - middle) * (b - middle) for a, b in zip(first, second, strict=True))
    below = sum((a - middle) ** 2 for a in first) * sum((b - middle) ** 2 for b in second)
    return float(top / below**0.5) if below else 1.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    return [(order.index(v) + len(order) - 1 - order[::-1].index(v)) / 2 for v in values]


def between(rows: Iterable[tuple[int, float]], at: int) -> float:
    """Medians by ``ncmoe``, linear in between, flat beyond."""
    groups: dict[int, list[float]] = defaultdict(list)
    for n, value in rows:
        groups[n].append(value)
    points = sorted((n, median(values)) for n, values in groups.items())
    below = [p for p in points if p[0] <= at] or points[:1]
    above = [p for p in points if p[0] >= at] or points[-1:]
    (low, a), (high, b) = below[-1], above[0]
    return a if high == low else a + (b - a) * (at - low) / (high - low)


def turn_s(sweep: Sweep, settings: Settings, prompt: int, answer: int) -> float:
    """Seconds of a turn under ``settings``, read off the measured rows."""
    rows = [r for r in sweep.rows if r.plain and r.settings.get("lm", "mmap") == settings.load_mode]
    sizes = sorted({r.n_ubatch for r in rows if r.pp})
    size = max((u for u in sizes if u <= settings.n_ubatch), default=sizes[0])
    pp = between(((r.n_cpu_moe, r.pp) for r in rows if r.pp and r.n_ubatch == size), settings.n_cpu_moe)
    tg = between(((r.n_cpu_moe, r.tg) for r in rows if r.tg), settings.n_cpu_moe)
    return prompt / pp + answer / tg


def report(sweep: Sweep, model: Model, say: Callable[[str], None]) -> None:
    prefill: list[tuple[float, float]] = []
    decode: list[tuple[float, float]] = []
    for row in sweep.rows:
        pp, tg = predicted(sweep, model, row)
        if pp and row.pp:
            prefill.append((pp, row.pp))
        if tg and row.tg:
            decode.append((tg, row.tg))
        given = " ".join(f"{k}={v}" for k, v in row.settings.items() if k not in ("ngl", "fa", "ot"))
        say(f"  {row.tag or given:55.55s} pp {_cell(pp, row.pp)}  tg {_cell(tg, row.tg)}")
    for name, pairs in (("prefill", prefill), ("decode", decode)):
        ratio = median(p / m for p, m in pairs)
        say(f"  {name}: Spearman {spearman(pairs):.3f} over {len(pairs)} rows, median predicted/measured {ratio:.2f}")
    for prompt, answer in WORKLOADS:
        _turns(sweep, model, prompt, answer, say)


def _cell(found: float | None, measured: float | None) -> str:
    return f"{found:8.1f} of {measured:8.1f}" if found and measured else " " * 20


def _turns(sweep: Sweep, model: Model, prompt: int, answer: int, say: Callable[[str], None]) -> None:
    work = Workload(n_ctx=prompt + answer, prompt_tokens=prompt, answer_tokens=answer)
    found = plan(Problem(sweep.machine, model, work), RULES)
    chosen = found.chosen.settings
    chosen_s = turn_s(sweep, chosen, prompt, answer)
    safe = [r for r in sweep.rows if r.plain and r.peak_mib and sweep.free_mib - r.peak_mib >= HEADROOM_MIB and r.pp]
    best = min(safe, key=lambda r: turn_s(sweep, settings_of(r, model), prompt, answer))
    best_s = turn_s(sweep, settings_of(best, model), prompt, answer)
    words = f"-ncmoe {chosen.n_cpu_moe} -ub {chosen.n_ubatch} {chosen.load_mode}"
    say(
        f"  {prompt}+{answer}: plan {words} {chosen_s:.2f} s; best safe -ncmoe {best.n_cpu_moe} -ub {best.n_ubatch} "
        f"{best_s:.2f} s: {best_s / chosen_s:.3f}"
    )
    for row in sweep.rows:
        if "fit" in row.tag and row.pp and row.tg:
            fit_s = prompt / row.pp + answer / row.tg
            say(f"  {prompt}+{answer}: {row.tag} {fit_s:.2f} s: {fit_s / chosen_s:.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--models", type=Path, required=True)
    args = parser.parse_args()
    for sweep in sweeps(args.cases):
        model = replace(analyze(str(args.models / f"{sweep.model}.gguf")))
        print(f"sweep {sweep.name}: {sweep.model}, {sweep.free_mib:,} MiB free")
        report(sweep, model, print)


if __name__ == "__main__":
    main()
