"""What verified runs of this machine, build and family of models are kept, and what the next plan takes from them."""

from __future__ import annotations

from time import strftime
from typing import TYPE_CHECKING

from planner.errors import OutputError
from planner.facts.model import Role
from planner.facts.observed import Verified
from planner.plans.plan import Candidate, Plan
from planner.plans.rule import Problem
from planner.plans.verified import Compared, Finding
from planner.verify.compare import extra
from planner.verify.learn import Rate, as_pin, changed, ratio, run_ratio

if TYPE_CHECKING:
    from planner.facts.machine import Machine
    from planner.facts.model import Model
    from planner.facts.workload import Workload
    from planner.verify.steady import Apart
    from probes.host import Host


def family(model: Model) -> str:
    """Models whose kernels are the same: architecture and types of the experts, or of all weights without any."""
    experts = [t for t in model.tensors if t.role is Role.EXPERT]
    types = sorted({t.type for t in experts or model.tensors})
    return f"{model.arch} {'+'.join(types)}"


def question(model: Model, work: Workload) -> str:
    """One model under one workload and its limits."""
    from hashlib import sha256

    return sha256(f"{model.fingerprint} {work!r}".encode("utf-8", "replace")).hexdigest()[:24]


def known(host: Host, machine: Machine, model: Model, work: Workload) -> Verified | None:
    """What earlier runs teach about a problem; None if there are none of this machine, build and family."""
    from probes import verified_store

    kept = verified_store.load(host, machine, family(model))
    mine = next((item for item in reversed(kept) if item.question == question(model, work)), None)
    last = mine or (kept[-1] if kept else None)
    if last is None:
        return None
    same = [item for item in kept if item.devices == last.devices]
    decode = ratio(tuple(Rate(item.decode, item.decode_spread) for item in same if item.decode is not None))
    prefill = ratio(tuple(Rate(item.prefill, item.prefill_spread) for item in same if item.prefill is not None))
    more: dict[str, int] = {}
    for device, n_bytes in (pair for item in same for pair in item.extra):
        more[device] = max(n_bytes, more.get(device, 0))
    return Verified(
        when=last.when,
        devices=last.devices,
        decode_ratio=decode.value if decode else None,
        prefill_ratio=prefill.value if prefill else None,
        decode_spread=decode.spread if decode else None,
        prefill_spread=prefill.spread if prefill else None,
        runs=max(decode.runs if decode else 0, prefill.runs if prefill else 0),
        bounded=bool((decode and decode.bounded) or (prefill and prefill.bounded)),
        extra=_bounded(machine, more),
        kept=mine.kept if mine else (),
        exact=mine is not None and mine.finding == Finding.VERIFIED,
        slower=last.finding == Finding.SLOWER,
        depth=last.depth,
    )


def _bounded(machine: Machine, extra: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """At most a tenth of a device: more is not a prediction that is off, but somebody else's memory."""
    most = {gpu.id: gpu.total_bytes // 10 for gpu in machine.gpus}
    return tuple((device, min(n, most[device])) for device, n in extra.items() if device in most)


def learn(
    host: Host,
    plan: Plan,
    kept: Candidate,
    compared: tuple[Compared, ...],
    finding: Finding,
    *,
    spreads: Apart | None,
    depth: int,
) -> Verified:
    """Keep a run, and say what the next plan takes from it and from those before.

    Args:
        finding: the verdict of a run that answered.
        spreads: the band that the run justifies, by rate; without one that of the prediction stays. None leaves the
            rates out, as those of a busy machine.
        depth: tokens of the longest prompt it answered.

    Raises:
        OutputError: it could not be kept.
    """
    from probes import verified_store

    before, devices = plan.verified, kept.settings.devices
    applied = before if before is not None and before.devices == devices else None
    speeds = spreads is not None
    run = verified_store.Run(
        when=strftime("%Y-%m-%d"),
        question=question(plan.model, plan.workload),
        devices=devices,
        decode=run_ratio(compared, "decode", applied.decode_ratio if applied else None) if speeds else None,
        prefill=run_ratio(compared, "prefill", applied.prefill_ratio if applied else None) if speeds else None,
        extra=extra(compared, devices),
        kept=_kept(plan, kept),
        finding=finding.value,
        depth=depth,
        decode_spread=_spread(compared, "decode", spreads),
        prefill_spread=_spread(compared, "prefill", spreads),
    )
    if problem := verified_store.save(host, plan.machine, family(plan.model), run):
        raise OutputError("the next plan learns nothing of this run", found=f"it could not be stored in {problem}")
    found = known(host, plan.machine, plan.model, plan.workload)
    slower = finding is Finding.SLOWER
    return found or Verified(run.when, devices, kept=run.kept, exact=not slower, slower=slower, depth=depth)


def _spread(compared: tuple[Compared, ...], term: str, spreads: Apart | None) -> float | None:
    """What a run justifies, or the prediction's own where it saw a rate only once; None where nothing is learned."""
    found = next((c.predicted for c in compared if c.term == term and c.judged and c.predicted.mid > 0), None)
    return None if spreads is None or found is None else dict(spreads).get(term, found.high / found.mid)


def _kept(plan: Plan, kept: Candidate) -> tuple[tuple[str, str], ...]:
    """What differs from the planner's own choice: earlier changes that held, and those of this run."""
    now = dict(changed(plan.chosen.settings, kept.settings))
    earlier = [name for name, _ in plan.verified.kept if hasattr(kept.settings, name)] if plan.verified else []
    settings = kept.settings
    names = [*earlier, *(name for name in now if name not in earlier)]
    return tuple((name, as_pin(getattr(settings, name))) for name in names if getattr(settings, name) is not None)


def problem(host: Host, machine: Machine, model: Model, work: Workload) -> Problem:
    """A problem with what earlier runs teach about it."""
    return Problem(machine, model, work, known(host, machine, model, work))
