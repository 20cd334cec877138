"""A fixed set of experts as the working-set fork of llama.cpp takes it: a plan CSV and its JSON sidecar.

``llama_model_params.hybrid_expert_cache_plan`` names the CSV: header ``layer,expert``, zero-based, every layer present;
the pool is its rows (zhaoyilun/moe-working-set-16gb).
"""

from __future__ import annotations

import json
from typing import Final

from planner.errors import OptionError
from planner.facts.model import Model, Role
from planner.facts.routing import PoolSet
from planner.units import GIB

ARCHITECTURES: Final = ("qwen35moe", "qwen4exp")


def check(model: Model) -> None:
    """Raises OptionError for a model that the fork does not take."""
    stems = {t.name.split(".", 2)[2] for t in model.tensors if t.role is Role.EXPERT}
    if model.arch not in ARCHITECTURES:
        raise OptionError("-o FILE.csv", expected=f"an architecture of {', '.join(ARCHITECTURES)}", found=model.arch)
    if any("gate_up" in stem or stem.endswith(".bias") for stem in stems):
        raise OptionError("-o FILE.csv", expected="separate expert matrices without biases", found="others")


def plan_csv(found: PoolSet) -> str:
    """One row per expert, ascending."""
    return "layer,expert\n" + "".join(f"{layer},{expert}\n" for layer, expert in found.experts)


def sidecar(model: Model, found: PoolSet, csv_name: str) -> str:
    """What the set is and where it comes from; bytes per expert are a list, as layers differ."""
    stats = model.routing
    data = {
        "evidence": "recorded selections" if stats is not None else "none",
        "policy": "most selected experts per byte, at least one token's per layer",
        "source_trace": stats.routing.source if stats is not None else None,
        "calibration_tokens": stats.n_tokens if stats is not None else None,
        "budget_gib": round(found.budget_bytes / GIB, 4),
        "expert_bytes": list(found.expert_bytes),
        "capacity_entries": len(found.experts),
        "packed_weight_bytes": found.n_bytes,
        "per_layer_entries": [found.entries(layer) for layer in found.layers],
        "plan_csv": csv_name,
    }
    return json.dumps(data, indent=2) + "\n"
