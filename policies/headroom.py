"""How much VRAM stays free on every device."""

from __future__ import annotations

from planner import units
from planner.facts.machine import DriverModel, Gpu
from planner.facts.reading import Source
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, Fate, RuleDoc
from planner.plans.memory import DeviceMemory
from planner.plans.plan import Candidate, Caution
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule

RESERVE_BYTES = units.GIB

DOC = RuleDoc(
    id="headroom",
    title="At least 1 GiB of VRAM stays free, counted after the desktop and the CUDA context",
    settings=("headroom",),
    what=(
        "Free at the peak = total - used before - everything predicted (weights, KV, compute buffer, CUDA "
        "context). That must be at least 1 GiB. Under WDDM the rule is hard: --headroom may raise it, not lower "
        "it. Elsewhere --headroom sets it. Of a device that shares RAM the rule is about its own limit; the RAM behind "
        "it has a margin of its own, and what stays free is the smaller of the two."
    ),
    why=(
        "Windows pages VRAM silently. A plan that fits on paper with less to spare may run or may fall to a "
        "twentieth of its speed, and which of the two can change from run to run. Traps: the total minus the "
        "buffers is not headroom (the desktop and the CUDA context come off, too); the gauge of used memory "
        "saturates when the card is oversubscribed (17,070 MiB of buffers read as 15,840 used); an allocation "
        "that succeeds proves nothing, because WDDM grants more than the card holds; a run of a few tokens "
        "proves nothing either (5.5 tok/s in 10 tokens, 0.71 in 250 of the same plan)."
    ),
    numbers=(
        (
            "no run with >= 1,024 MiB free collapsed",
            "131 runs on one 16 GB card, zhaoyilun/moe-working-set-16gb",
        ),
        ("collapsed at 536, 453 and 386 MiB shown free", "the same runs"),
        ("1 GiB outside WDDM, too", "llama.cpp's own --fit-target default, 1,024 MiB per device"),
    ),
    abstains="No device takes part.",
    references=("common/fit.cpp (b11312): margin of 1024 MiB per device",),
)


def _hard(gpu: Gpu) -> bool:
    return gpu.driver_model is DriverModel.WDDM


def _reserve(gpu: Gpu, asked: int | None) -> int:
    wanted = RESERVE_BYTES if asked is None else asked
    return max(wanted, RESERVE_BYTES) if _hard(gpu) else wanted


def _kept(device: DeviceMemory, rule: str) -> str:
    """What the device's own limit leaves under the rule; of one that shares RAM, what RAM leaves, too."""
    if device.shared_free_bytes is None:
        return f"{device.id}: {units.mib(device.room_bytes)} stay free; {rule}"
    shared = units.mib(max(device.shared_free_bytes, 0))
    limit = units.mib(device.room_bytes)
    return f"{device.id}: {shared} of the RAM it shares stay free; its own limit is {limit} away; {rule}"


def _without(gpu: Gpu) -> str:
    """What less than the margin risks: depends on who hands out the memory."""
    if _hard(gpu):
        return "under WDDM runs with less than 1 GiB free collapsed at random: Windows pages VRAM without an error"
    return "nothing is left for what was not predicted: an allocation fails, at load or in the middle of an answer"


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Set the bytes to keep free per device."""
    asked = problem.workload.headroom_bytes
    gpus = [problem.gpu(name) for name in draft.values("devices")[0]]
    cautions = tuple(
        Caution(
            "headroom-floor",
            f"--headroom {units.mib(asked)} is under the 1,024 MiB that WDDM needs; {gpu.id} keeps 1,024 MiB free.",
        )
        for gpu in gpus
        if asked is not None and _reserve(gpu, asked) > asked
    )
    return Proposal(reserve=tuple((gpu.id, _reserve(gpu, asked)) for gpu in gpus), cautions=cautions)


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """One decision per device: what is kept, what is really left."""
    asked = problem.workload.headroom_bytes
    decisions = []
    for device in chosen.memory.devices:
        gpu, reserve = problem.gpu(device.id), dict(draft.reserve)[device.id]
        used = Source.ASSUMED if gpu.used_bytes is None else Source.REPORTED
        evidence: tuple[Evidence, ...] = (
            Evidence(f"{device.id} total", device.total_bytes, "bytes", Source.REPORTED),
            Evidence(f"{device.id} used before", device.used_before_bytes, "bytes", used),
            Evidence(f"{device.id} predicted", device.predicted_bytes, "bytes", Source.DERIVED),
            Evidence("kept free", reserve, "bytes", Source.ASSUMED if asked is None else Source.USER),
        )
        if device.shared_free_bytes is not None:
            evidence += (Evidence("RAM that stays free", device.shared_free_bytes, "bytes", Source.DERIVED),)
        rule = "hard under WDDM" if _hard(gpu) else "default" if asked is None else "asked for"
        decisions.append(
            Decision(
                "headroom",
                "headroom",
                reserve,
                _kept(device, f"the rule is {units.mib(reserve)} ({rule})"),
                Confidence.DERIVED,
                evidence,
                (Alternative(0, Fate.UNSAFE, None, _without(gpu)),),
            )
        )
    return tuple(decisions)


RULE = Rule(DOC, propose, explain)
