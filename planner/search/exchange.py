"""Exchange rates: what the next step of a knob buys or costs when the placement is decided anew."""

from __future__ import annotations

from collections.abc import Iterator

from planner import units
from planner.plans.plan import Candidate, Exchange
from planner.search.engine import Search
from planner.search.neighbours import sizes, under, with_ubatch


def exchange(searched: Search, chosen: Candidate) -> tuple[Exchange, ...]:
    """Twice and half the context (with this ubatch or half of it), and the neighbouring ubatches; no idle step."""
    found = (
        Exchange(change, "does not fit" if candidate is None else difference(candidate, chosen))
        for change, candidate in _steps(searched, chosen)
    )
    return tuple(item for item in found if item.effect)


def _steps(searched: Search, chosen: Candidate) -> Iterator[tuple[str, Candidate | None]]:
    """Each change and the best that has it; load mode and devices stay as chosen."""
    settings, work = chosen.settings, searched.problem.workload
    pins = dict(work.pins)
    open_ = tuple(u for u in (settings.n_ubatch, settings.n_ubatch // 2) if u in searched.draft.values("n_ubatch"))
    turn = (work.prompt_tokens + work.answer_tokens) * work.n_parallel
    for n_ctx in (settings.n_ctx * 2, settings.n_ctx // 2):
        if turn <= n_ctx <= searched.problem.model.n_ctx_train * work.n_parallel and "n_ctx" not in pins:
            kept = {"load_mode": (settings.load_mode,), "devices": (settings.devices,), "n_ubatch": open_}
            yield f"n_ctx {n_ctx:,}", under(searched, **kept, n_ctx=(n_ctx,)).best()
    for n_ubatch in sizes(searched, chosen):
        if "n_ubatch" not in pins:
            yield f"n_ubatch {n_ubatch:,}", with_ubatch(searched, chosen, n_ubatch)


def difference(other: Candidate, chosen: Candidate) -> str:
    """``"3 expert layers more in RAM, prefill -4%, decode -11%"``; empty where nothing changes."""
    words = []
    moved = other.settings.n_cpu_moe - chosen.settings.n_cpu_moe
    if moved:
        words.append(f"{units.counted(abs(moved), 'expert layer')} {'more' if moved > 0 else 'fewer'} in RAM")
    if other.settings.override_tensor != chosen.settings.override_tensor:
        words.append("single tensors by -ot" if other.settings.override_tensor else "no -ot")
    pool = other.settings.moe_cache_mib
    if pool != chosen.settings.moe_cache_mib:
        words.append(f"a pool of {pool:,} MiB" if pool else "no pool")
    layers = chosen.settings.n_gpu_layers - other.settings.n_gpu_layers
    if layers:
        words.append(f"{units.counted(abs(layers), 'layer')} {'fewer' if layers > 0 else 'more'} on the GPU")
    if other.settings.n_ctx != chosen.settings.n_ctx and other.settings.n_ubatch != chosen.settings.n_ubatch:
        words.append(f"n_ubatch {other.settings.n_ubatch:,}")
    changes = []
    for name in ("prefill", "decode"):
        before, after = getattr(chosen.speed, f"{name}_tps").mid, getattr(other.speed, f"{name}_tps").mid
        changes.append((name, round(100.0 * (after / before - 1.0))))
    words += [f"{name} {change:+d}%" for name, change in changes if words or any(c for _, c in changes)]
    return ", ".join(words)
