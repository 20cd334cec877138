"""What a pool of experts wins or loses in decode, and from which hit rate on it wins."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from planner.cost.host_share import host_expert_shares
from planner.cost.layout import active_devices, layer_devices, split_shares
from planner.cost.pool import Pools, upload_s
from planner.cost.rates import rates_of
from planner.facts.machine import Backend, Machine
from planner.facts.model import Model
from planner.plans.plan import Candidate
from planner.plans.settings import Settings


@dataclass(frozen=True, slots=True)
class Gain:
    """One pool.

    Args:
        hit_rate: expected, over all it serves.
        break_even: hit rate from which decode is faster than without a pool, at the same placement.
        share: of the experts of the blocks it serves.
        cycle_bytes: experts that one token uses in those blocks.
    """

    hit_rate: float
    break_even: float
    share: float
    cycle_bytes: int


def gain(model: Model, machine: Machine, pooled: Candidate, without: Candidate) -> Gain:
    """The pool of ``pooled`` against the same placement without one."""
    pools, settings = Pools(model, machine), pooled.settings
    devices = active_devices(settings)
    layers = layer_devices(model.n_layer, settings.n_gpu_layers, devices, split_shares(settings, machine))
    groups = pools.groups(settings, layers, host_expert_shares(model, settings, layers))
    running, rates = [group for group in groups if group.slots], rates_of(machine)
    active = {group: group.selected * group.slot_bytes for group in running}
    whole = sum(active.values())
    hits = sum(active[group] * pools.hit_rate(group) for group in running) / whole if whole else 0.0
    seconds = {group: group.selected * upload_s(group, settings, rates) for group in running}
    missed_s = sum(seconds[group] * (1.0 - pools.hit_rate(group)) for group in running)
    held_s = 1.0 / pooled.speed.decode_tps.mid - missed_s
    slots, experts = sum(g.slots for g in running), sum(len(g.blocks) * g.n_expert for g in running)
    least = break_even(1.0 / without.speed.decode_tps.mid, held_s, sum(seconds.values()))
    return Gain(hits, least, slots / experts if experts else 0.0, whole)


def break_even(without_s: float, held_s: float, upload_s: float) -> float:
    """Hit rate from which a pool makes a token faster, 0 to 1.

    Hits save what the CPU takes for them and the crossings; the pool costs a read-back per block at any hit rate, and
    the link's time for every miss.

    Args:
        without_s: a token's time without a pool.
        held_s: with everything in the pool.
        upload_s: what uploading all of a token's experts takes.
    """
    return min(max(1.0 - (without_s - held_s) / upload_s, 0.0), 1.0) if upload_s > 0 else 0.0


def spare(candidate: Candidate, reserve: tuple[tuple[str, int], ...]) -> int:
    """Bytes that a pool can take beside a candidate on the fullest of its devices."""
    keep = dict(reserve)
    return min((d.room_bytes - keep.get(d.id, 0) for d in candidate.memory.devices), default=0)


def largest(steps: tuple[int, ...], n_mib: int) -> int:
    """The largest of ascending steps within ``n_mib``; 0 if none is."""
    index = bisect_right(steps, n_mib)
    return steps[index - 1] if index else 0


def usable(machine: Machine, devices: tuple[str, ...]) -> bool:
    """Whether a pool can be worth it: every device has memory of its own, behind a link of this computer."""
    gpus = [gpu for gpu in machine.gpus if gpu.id in devices]
    return bool(gpus) and all(not gpu.unified and gpu.backend is not Backend.RPC for gpu in gpus)


def bare(settings: Settings) -> bool:
    """Whether nothing is in the way of a pool: no tensor of a block was moved on its own, no draft model runs."""
    return not settings.override_tensor and settings.spec_type is None
