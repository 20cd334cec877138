"""Which changes of speed alone are worth a trial, by what they are expected to save.

The cost model prices placement, ubatch and load mode; what it does not know (threads, speculation) or knows badly
gets the share that trials elsewhere have found, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from planner.facts.workload import Goal
from planner.plans.compare import cost
from planner.plans.plan import Candidate
from planner.plans.rule import Problem
from planner.plans.settings import LoadMode, Settings
from planner.plans.verified import Attempt
from planner.units import MIB

LEAST_UBATCH: Final = 64
LARGEST_UBATCH: Final = 8192
POOL_STEP_MIB: Final = 256
SLOT_CYCLES: Final = 2
"""A pool under two tokens' worth of experts thrashes (20 runs of b11549: break-even near one)."""

PAID: Final = (1, 2, 3, 4, 6, 8, 12, 16)
"""Blocks whose experts may move to RAM to make room for a change."""

HOPE: Final = {
    "threads": (0.08, "-t 8 instead of 16 cost 9.6 %, one per core is not always best (club-3090)"),
    "threads_batch": (0.06, "SMT siblings sometimes help where a prompt is computed (assumed)"),
    "n_ubatch": (0.05, "the ubatch law is no closer than some 5 %"),
    "load_mode": (0.05, "mapped experts cost 40 % of prefill with a GPU (16 GB card), nearly nothing without one"),
    "op_offload": (0.04, "streaming experts loses where the link is slow"),
    "moe_cache_mib": (0.10, "4 to 8 GiB gave 6 to 24 % (16 GB card); one card lost half"),
    "spec_type": (0.15, "draft-mtp pays where drafts are accepted"),
    "n_cpu_moe": (0.02, "layer times are no closer than some 2 %"),
}
"""What a trial is worth where the model predicts less, with its ground: an order to try in, not a forecast."""

PARTS: Final = {
    "threads": Goal.DECODE,
    "spec_type": Goal.DECODE,
    "threads_batch": Goal.PREFILL,
    "n_ubatch": Goal.PREFILL,
    "op_offload": Goal.PREFILL,
}
"""What a change acts on; everything else on both. llama.cpp offloads operations for batches of 32 and more."""

Changes = tuple[tuple[str, Any], ...]
Evaluate = Callable[[Settings], Candidate]


@dataclass(frozen=True, slots=True)
class Engine:
    """What the engine can do: flags it lists; ``spells`` is False for settings its build refuses."""

    flags: tuple[str, ...]
    spells: Callable[[Settings], bool]


def proposals(
    problem: Problem, current: Candidate, evaluate: Evaluate, engine: Engine, tried: frozenset[Settings]
) -> tuple[Attempt, ...]:
    """Changes that fit, best first. A pinned setting is left alone, and so is whatever was tried before."""
    goal = problem.workload.goal
    found: dict[Settings, Attempt] = {}
    for changes in _changes(problem, current, engine):
        names = {name for name, _ in changes}
        settings = replace(current.settings, **dict(changes))
        if settings in tried or settings == current.settings or any(problem.pin(name) is not None for name in names):
            continue
        candidate, changes = _fitting(problem, evaluate(settings), changes, evaluate)
        settings = candidate.settings
        if settings in tried or not candidate.runs or candidate.verdict is not current.verdict:
            continue
        if not engine.spells(settings):
            continue
        attempt = _attempt(problem, current, candidate, changes)
        shows = Goal.TURN in (goal, attempt.part) or attempt.part is goal
        if attempt.worth > 0 and shows:
            found[settings] = attempt
    return tuple(sorted(found.values(), key=lambda attempt: -attempt.worth))


def _fitting(problem: Problem, candidate: Candidate, changes: Changes, evaluate: Evaluate) -> tuple[Candidate, Changes]:
    """The change; where the devices have no room for it, with the fewest experts moved to RAM that make room."""
    settings = candidate.settings
    bound = problem.pin("n_cpu_moe") is not None or settings.override_tensor or not problem.model.is_moe
    if candidate.runs or bound or not settings.devices or any(name == "n_cpu_moe" for name, _ in changes):
        return candidate, changes
    for step in PAID:
        n_cpu_moe = settings.n_cpu_moe + step
        if n_cpu_moe > problem.model.n_layer:
            break
        paid = evaluate(replace(settings, n_cpu_moe=n_cpu_moe))
        if paid.runs:
            return paid, (*changes, ("n_cpu_moe", n_cpu_moe))
    return candidate, changes


def _attempt(problem: Problem, current: Candidate, candidate: Candidate, changes: Changes) -> Attempt:
    """A change with what the model predicts for it; the very same cost means that the model does not see it."""
    goal, name = problem.workload.goal, changes[0][0]
    before, after = cost(current, goal), cost(candidate, goal)
    predicted = 1.0 - after / before
    hope, ground = HOPE[name]
    worth, basis = (predicted, "predicted") if predicted >= hope else (hope + min(predicted, 0.0) / 2, ground)
    n_ubatch = max(candidate.settings.n_ubatch, current.settings.n_ubatch)
    expected = predicted if after != before else None
    part = PARTS.get(name, Goal.TURN) if all(other in (name, "n_batch") for other, _ in changes) else Goal.TURN
    return Attempt(changes, candidate.settings, expected, worth, basis, part, n_ubatch)


def _changes(problem: Problem, current: Candidate, engine: Engine) -> Iterator[Changes]:
    settings = current.settings
    yield from _threads(problem, settings)
    longest = min(LARGEST_UBATCH, settings.n_ctx)
    for n_ubatch in (settings.n_ubatch * 2, settings.n_ubatch // 2):
        fills = n_ubatch < settings.n_ubatch or settings.n_ubatch < problem.workload.prompt_tokens
        if LEAST_UBATCH <= n_ubatch <= longest and fills:
            yield (("n_ubatch", n_ubatch), ("n_batch", max(settings.n_batch, n_ubatch)))
    other = LoadMode.MMAP if settings.load_mode is LoadMode.NONE else LoadMode.NONE
    yield (("load_mode", other),)
    if problem.model.n_layer_nextn and "--spec-type" in engine.flags:
        yield (("spec_type", None if settings.spec_type else "draft-mtp"),)
    if not settings.devices:
        return
    if problem.model.is_moe and not settings.override_tensor:
        for step in (-1, -2, 1):
            if 0 <= settings.n_cpu_moe + step <= problem.model.n_layer:
                yield (("n_cpu_moe", settings.n_cpu_moe + step),)
    if settings.n_cpu_moe:
        yield (("op_offload", not settings.op_offload),)
        yield from _pool(problem, current, engine)


def _threads(problem: Problem, settings: Settings) -> Iterator[Changes]:
    cpu, now = problem.machine.cpu, settings.threads
    if now is None:
        return
    near = {cpu.physical_cores, cpu.logical_cores, max(now - 1, 1), now * 3 // 4}
    if cpu.read_threads is not None:
        near.add(int(cpu.read_threads.value))
    for count in sorted({n for n in near if n and n != now}, key=lambda n: abs(n - now)):
        yield (("threads", count),)
    if cpu.logical_cores and cpu.logical_cores != settings.threads_batch:
        yield (("threads_batch", cpu.logical_cores),)


def _pool(problem: Problem, current: Candidate, engine: Engine) -> Iterator[Changes]:
    """The expert cache off, or as large as the room that a device has beyond its reserve."""
    settings, model = current.settings, problem.model
    if settings.moe_cache_mib:
        yield (("moe_cache_mib", 0),)
        return
    if "--moe-cache-mib" not in engine.flags or not model.n_expert:
        return
    room = min(device.headroom_bytes for device in current.memory.devices)
    least = SLOT_CYCLES * model.expert_bytes * model.n_expert_used // model.n_expert
    size = room // MIB // POOL_STEP_MIB * POOL_STEP_MIB
    while size * MIB >= least and size > 0:
        yield (("moe_cache_mib", size),)
        size -= max(size // 4 // POOL_STEP_MIB, 1) * POOL_STEP_MIB
