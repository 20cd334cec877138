"""Exchange rates: what the next step of a knob buys or costs when everything else is decided anew."""

from __future__ import annotations

from dataclasses import replace

from planner.cost.evaluate import Evaluator
from planner.plans.plan import Candidate, Exchange
from planner.plans.rule import Problem, Rule
from planner.search.ladder import search


def exchange(
    problem: Problem, rules: tuple[Rule, ...], evaluator: Evaluator, chosen: Candidate
) -> tuple[Exchange, ...]:
    """What twice the context, half of it, or another ubatch would buy or cost, with everything else decided anew."""
    settings, work = chosen.settings, problem.workload
    steps = [(f"n_ctx {n:,}", replace(work, n_ctx=n)) for n in (settings.n_ctx * 2, settings.n_ctx // 2)]
    steps += [
        (f"n_ubatch {u:,}", replace(work, n_ctx=settings.n_ctx, pins=(*work.pins, ("n_ubatch", str(u)))))
        for u in (settings.n_ubatch * 2, settings.n_ubatch // 2)
        if 64 <= u <= settings.n_ctx and "n_ubatch" not in dict(work.pins)
    ]
    found = []
    for change, other in steps:
        if other.n_ctx is not None and other.n_ctx > problem.model.n_ctx_train * work.n_parallel:
            continue
        candidate = search(replace(problem, workload=other), rules, evaluator).best()
        found.append(Exchange(change, "does not fit" if candidate is None else _difference(candidate, chosen)))
    return tuple(found)


def _difference(other: Candidate, chosen: Candidate) -> str:
    """``"3 expert layers more in RAM, prefill -4%, decode -11%"``."""
    words = []
    moved = other.settings.n_cpu_moe - chosen.settings.n_cpu_moe
    if moved:
        words.append(f"{abs(moved)} expert layer(s) {'more' if moved > 0 else 'fewer'} in RAM")
    layers = chosen.settings.n_gpu_layers - other.settings.n_gpu_layers
    if layers:
        words.append(f"{abs(layers)} layer(s) {'fewer' if layers > 0 else 'more'} on the GPU")
    if other.settings.n_ubatch != chosen.settings.n_ubatch:
        words.append(f"n_ubatch {other.settings.n_ubatch:,}")
    for name in ("prefill", "decode"):
        before, after = getattr(chosen.speed, f"{name}_tps").mid, getattr(other.speed, f"{name}_tps").mid
        words.append(f"{name} {100.0 * (after / before - 1.0):+.0f}%")
    return ", ".join(words)
