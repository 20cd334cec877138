"""Predicted against measured decode of every point: ``python benchmarks/pool/compare.py FOLDER MODELS``

FOLDER holds ``rows.jsonl`` and the recordings of ``measure.py``; MODELS the mixtures, or hollow ones of the same
names (``upcycle.py DENSE x64k4.gguf 64 4 --hollow``, and so on; DENSE named as it was there: what was timed is found
by the header). The median of the answers after the first counts, of both runs where a point was run again.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from pool_common import machine_of, workload

from planner.cost.evaluate import Evaluator
from planner.cost.host_share import host_expert_shares
from planner.cost.model import CostModel
from planner.facts.machine import Machine
from planner.facts.model import Model
from planner.gguf.analyze import analyze
from planner.plans.memory import total
from planner.plans.settings import FlashAttn, LoadMode, Settings, SplitMode
from planner.routing.analysis import analyse
from planner.routing.load import load
from planner.routing.shape import shape_of
from planner.units import MIB

NOISE = 0.03
"""Points closer than this are not told apart: repeats of one point differ by as much."""


def settings_of(row: dict[str, Any]) -> Settings:
    data = {name: tuple(value) if isinstance(value, list) else value for name, value in row["settings"].items()}
    data |= {"flash_attn": FlashAttn(data["flash_attn"]), "load_mode": LoadMode(data["load_mode"])}
    return Settings(**data | {"split_mode": SplitMode(data["split_mode"])})


def speed_of(*rows: dict[str, Any]) -> float:
    return statistics.median(tps for row in rows for tps in row["decode_tps"][1:] or row["decode_tps"])


def hits_of(row: dict[str, Any]) -> float | None:
    found = [re.search(r"ubatch <= \d+: .*hit rate = ([\d.]+)%", line) for line in row["cache"]]
    return next((float(match[1]) / 100 for match in found if match), None)


def cache_of(row: dict[str, Any]) -> float | None:
    """MiB of the pool as llama.cpp logged it."""
    sizes = [float(m[1]) for line in row["cache"] if (m := re.search(r"MoE cache size = +([\d.]+) MiB", line))]
    return sum(sizes) if sizes else None


def evaluated(model: Model, machine: Machine, row: dict[str, Any]) -> dict[str, Any]:
    """One line of the table."""
    cost, settings = CostModel(model, machine), settings_of(row)
    candidate = Evaluator(cost, workload(prompt_tokens=int(statistics.mean(row["prompt_n"])))).candidate(settings, ())
    device, layers = candidate.memory.devices[0], cost.layers_on(settings)
    groups = cost.pools.groups(settings, layers, host_expert_shares(model, settings, layers))
    rates = [cost.pools.hit_rate(group) for group in groups]
    pool = total(device.cache) / MIB
    logged = cache_of(row)
    return {
        "label": row["label"],
        "measured_tps": round(speed_of(row), 1),
        "predicted_tps": round(candidate.speed.decode_tps.mid, 1),
        "hits": hits_of(row),
        "expected_hits": round(statistics.mean(rates), 4) if rates else None,
        "pool_mib": logged,
        "predicted_pool_mib": round(pool, 1) if settings.moe_cache_mib else None,
        "peak_mib": round(row["used_bytes"] / MIB),
        "predicted_mib": round(device.predicted_bytes / MIB),
        "over": round(device.predicted_bytes / row["used_bytes"] - 1, 4),
    }


def tabled(model: Model, machine: Machine, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line per point; a second run joins the first, a greedy one leaves its hit rate."""
    first = [row for row in rows if not row.get("again") and not row.get("greedy")]
    table = [evaluated(model, machine, row) for row in first]
    for line, row in zip(table, first, strict=True):
        others = [other for other in rows if other["label"] == row["label"] and other is not row]
        greedy = next((other for other in others if other.get("greedy")), None)
        again = next((other for other in others if other.get("again")), None)
        if greedy is not None:
            line |= {"greedy_hits": hits_of(greedy), "greedy_tps": round(speed_of(greedy), 1)}
        if again is not None:
            noise = round(speed_of(again) / speed_of(row) - 1, 3)
            line |= {"measured_tps": round(speed_of(row, again), 1), "noise": noise}
    return table


def order_faults(table: list[dict[str, Any]]) -> list[str]:
    """Pairs of pool sizes that the prediction orders otherwise than the measurement, beyond noise."""
    faults = []
    for i, one in enumerate(table):
        for other in table[i + 1 :]:
            ratio = one["measured_tps"] / other["measured_tps"]
            if abs(ratio - 1) > NOISE and (ratio > 1) != (one["predicted_tps"] > other["predicted_tps"]):
                faults.append(f"{one['label']} / {other['label']}")
    return faults


def even(table: list[dict[str, Any]], key: str) -> str:
    """The smallest pool that is faster than none."""
    none = next(line[key] for line in table if line["label"] == "pool 0")
    return next((line["label"] for line in table if line["label"] != "pool 0" and line[key] > none), "never")


def choice(table: list[dict[str, Any]], share: float) -> tuple[str, float]:
    """What the prediction picks among the points that fit a pool of this share, against the best of them."""
    chosen = max(within(table, share), key=lambda line: line["predicted_tps"])
    return chosen["label"], chosen["measured_tps"] / best_of(table, share)["measured_tps"]


def within(table: list[dict[str, Any]], share: float) -> list[dict[str, Any]]:
    """Points of the grid that hold at most this share of the experts on the card."""
    grid = [line for line in table if not line["label"].startswith("moeplan")]
    return [line for line in grid if float(line["label"].split()[1]) <= share]


def best_of(table: list[dict[str, Any]], share: float) -> dict[str, Any]:
    return max(within(table, share), key=lambda line: line["measured_tps"])


def judged(name: str, table: list[dict[str, Any]]) -> None:
    """Order, break-even, memory and choices of one model, in words."""
    over = [line["over"] for line in table if line["pool_mib"]]
    if over:
        print(f"# {name}: peaks with a pool {min(over):+.2%} to {max(over):+.2%} of the measured ones")
    pools = [line for line in table if line["label"].startswith("pool")]
    if not pools or pools[0]["label"] != "pool 0":
        return
    print(f"# {name}: order faults {order_faults(pools) or 'none'}; break-even measured at")
    print(f"#   {even(pools, 'measured_tps')}, predicted at {even(pools, 'predicted_tps')}")
    for share in (1 / 8, 1 / 4, 1 / 2):
        print("#   choice up to {:g} of the experts: {} at {:.3f} of the best".format(share, *choice(table, share)))
    for line in (line for line in table if line["label"].startswith("moeplan")):
        best = best_of(table, float(line["label"].split()[1]))
        ratio = line["measured_tps"] / best["measured_tps"]
        print(f"#   {line['label']}: {ratio:.3f} of the best measured point of that size ({best['label']})")


def main(folder: Path, models: Path) -> None:
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    told = next(row for row in rows if row["kind"] == "machine")
    for about in (row for row in rows if row["kind"] == "model"):
        model = analyze(str(models / f"{about['model']}.gguf"))
        routing, shape = load(str(folder / f"{about['model']}.npz"), model), shape_of(model)
        model = replace(model, routing=analyse(routing, shape.bytes_of(routing.layers), every_policy=False))
        mine = [row for row in rows if row["kind"] == "point" and row["model"] == about["model"]]
        mine = [row for row in mine if "error" not in row and row["settings"]["devices"]]
        table = tabled(model, machine_of(told, about["layers"]), mine)
        for line in table:
            print(json.dumps({"model": about["model"], **line}))
        judged(about["model"], table)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
