"""Replay published speeds: ``python benchmarks/replay/public.py ../shared/cases/speed_public.jsonl --layouts DIR``.

``DIR`` keeps the layouts (``zoo.py`` writes those that are missing, headers only). Every row is priced as
``moeplan check`` would on a machine file that holds what the row says, and compared with what was measured:

- decode at the row's depth;
- prefill of ``n_prompt`` tokens behind ``depth`` others: the time of both together less that of the depth alone. A row
  whose prompt is the depth, or that tells only a depth, starts from nothing.

Rows that are no fair test (``public_rows.case_of``) are priced, too, and counted apart.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from public_rows import Case, case_of, layout_of, machine_of, settings_of
from sweep import spearman

from planner.cost.evaluate import Evaluator
from planner.cost.model import CostModel
from planner.facts.model import Model
from planner.facts.workload import Workload
from planner.plans.settings import Tool
from planner.plans.speed import Band

TOLERANCE = 0.25


@dataclass(frozen=True)
class Figure:
    """One measured speed against the predicted band, tok/s."""

    case: Case
    kind: str
    measured: float
    band: Band
    bound_by: str

    @property
    def ratio(self) -> float:
        return self.band.mid / self.measured

    @property
    def near(self) -> bool:
        return abs(self.ratio - 1.0) <= TOLERANCE

    @property
    def covered(self) -> bool:
        return self.band.low <= self.measured <= self.band.high


def figures(case: Case, model: Model) -> Iterable[Figure]:
    """Decode, then prefill, where the row has them."""
    row = case.row
    machine = machine_of(row)
    settings = settings_of(row, model, machine)
    cost = CostModel(model, machine, Tool.BENCH)
    depth, answer = row.get("depth") or 0, row.get("n_gen") or 128
    if row.get("tg_tps"):
        # one token of prompt and twice the depth of answer: priced in the middle of the answer
        work = Workload(prompt_tokens=1, answer_tokens=2 * depth + answer)
        speed = Evaluator(cost, work).candidate(settings, ()).speed
        yield Figure(case, "decode", row["tg_tps"], speed.decode_tps, speed.bound_by.value)
    if row.get("pp_tps") and "not a prefill figure" not in (row.get("note") or ""):
        prompt = row.get("n_prompt") or depth or 512
        before = depth if depth and row.get("n_prompt") not in (None, depth) else 0
        settings = replace(settings, n_ubatch=min(settings.n_ubatch, prompt))
        priced = [
            Evaluator(cost, Workload(prompt_tokens=n, answer_tokens=1)).candidate(settings, ()).speed
            for n in (before + prompt, before)
            if n
        ]
        whole = priced[0].prefill_tps
        seconds = (before + prompt) / whole.mid - (before / priced[1].prefill_tps.mid if before else 0.0)
        mid = prompt / seconds
        band = Band(mid * whole.low / whole.mid, mid, mid * whole.high / whole.mid)
        yield Figure(case, "prefill", row["pp_tps"], band, priced[0].bound_by.value)


def show(figure: Figure) -> str:
    band, mark = figure.band, " " if figure.near else "*"
    hit = "in " if figure.covered else "out"
    return (
        f"{mark} {figure.case.id:34.34s} {figure.kind:7s} {band.low:7.1f} {band.mid:7.1f} {band.high:7.1f}"
        f" of {figure.measured:7.1f} {figure.ratio:5.2f} {hit} {figure.bound_by:7s}"
        f" {figure.case.apart or ('' if figure.near else why(figure))}"
    )


def why(figure: Figure) -> str:
    """What the row does not tell of the resource that binds, or its own remark."""
    row = figure.case.row
    told: dict[str, Any] = row["machine"]
    reasons = {
        "card not told by name": "gfx" in str(told.get("gpu")),
        "CPU not told": figure.bound_by == "ram" and not told.get("cpu"),
        "speed of RAM not told": figure.bound_by == "ram" and not re.search(r"\d{4}|GB/s", told.get("ram") or ""),
        "link not told": figure.bound_by == "pcie" and not told.get("pcie"),
        "ubatch not told": figure.kind == "prefill" and not row.get("ubatch") and "-ub" not in (row.get("flags") or ""),
        "length of the prompt not told": figure.kind == "prefill" and not (row.get("n_prompt") or row.get("depth")),
    }
    note = row.get("note") if figure.kind == "decode" else None
    return ", ".join([*(reason for reason, holds in reasons.items() if holds), *([note] if note else ())])


def summary(title: str, found: list[Figure]) -> None:
    for kind in ("decode", "prefill"):
        rows = [f for f in found if f.kind == kind]
        if rows:
            near, covered = sum(f.near for f in rows), sum(f.covered for f in rows)
            print(
                f"{title:36s} {kind:7s} {len(rows):3d} rows: within 25 % {near:3d} ({near / len(rows):4.0%}),"
                f" in the band {covered:3d} ({covered / len(rows):4.0%}),"
                f" median ratio {median(f.ratio for f in rows):.2f}"
            )


def groups(found: list[Figure]) -> None:
    """Ratios by what binds, per source and card; rank correlation per source."""
    by: dict[tuple[str, ...], list[Figure]] = defaultdict(list)
    sources: dict[tuple[str, str], list[Figure]] = defaultdict(list)
    for f in found:
        row = f.case.row
        by[f.kind, f.bound_by, str(row["machine"].get("gpu"))[:34], row["model"][:24], row["engine"][:9]].append(f)
        if f.case.apart in ("", "other engine"):
            sources[f.kind, row["source"]].append(f)
    print("\npredicted/measured by what binds")
    for key, rows in sorted(by.items()):
        ratios = sorted(f.ratio for f in rows)
        print(
            f"  {key[0]:7s} {key[1]:7s} {key[2]:34s} {key[3]:24s} {key[4]:9s} n {len(rows):2d}"
            f"  {ratios[0]:.2f} {median(ratios):.2f} {ratios[-1]:.2f}"
        )
    print("\nSpearman per source (four rows and more)")
    for (kind, source), rows in sorted(sources.items()):
        if len(rows) >= 4:
            rank = spearman([(f.band.mid, f.measured) for f in rows])
            print(f"  {kind:7s} {source:44s} n {len(rows):2d}  {rank:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--layouts", type=Path, required=True, help="folder of layouts; what is missing is written")
    parser.add_argument("--quiet", action="store_true", help="totals only")
    args = parser.parse_args()
    shared = args.cases.resolve().parents[1]
    found: list[Figure] = []
    for line in args.cases.read_text(encoding="utf-8").splitlines():
        case = case_of(json.loads(line))
        model = layout_of(case.row, shared, args.layouts)
        if model is None:
            print(f"  {case.id:34s} no layout of {case.row['model']}")
            continue
        rows = list(figures(case, model))
        found += rows
        if not args.quiet:
            print("\n".join(show(f) for f in rows))
    print()
    stated = [f for f in found if f.case.stated]
    summary("CPU, RAM and GPU told", stated)
    summary("  of these llama.cpp, fair", [f for f in stated if not f.case.apart])
    summary("  of these ik_llama.cpp", [f for f in stated if f.case.apart == "other engine"])
    summary("all rows with a layout", found)
    summary("  of these llama.cpp, fair", [f for f in found if not f.case.apart])
    groups(found)


if __name__ == "__main__":
    main()
