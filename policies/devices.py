"""Which devices take part."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from planner import units
from planner.cost.layout import used_before
from planner.facts.machine import Backend, Gpu
from planner.facts.reading import Source
from planner.plans.compare import versus
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, Fate, RuleDoc
from planner.plans.plan import Candidate, Caution
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule

SMALLEST_BYTES = 2 * units.GIB

EVERY_COUNT = 8

DOC = RuleDoc(
    id="devices",
    title="Use every GPU that llama.cpp lists and that has room for more than its own overhead",
    settings=("devices",),
    what=(
        "A device takes part when the llama.cpp build has its backend and at least 2 GiB of it are free. Devices "
        "are ordered by their links where every one is reported or measured, else as llama.cpp lists them, remote "
        "ones last: the first device runs the multiplies whose weights are in host memory. All of them, fewer (those "
        "with the slower link or less free memory go first; from more than eight devices on half as many) and none are "
        "compared by the time of a turn."
    ),
    why=(
        "A device with less free memory than its context, its compute buffer and the headroom cannot hold a "
        "single layer, and an idle backend still costs graph splits in every token. An integrated GPU shares "
        "RAM: it adds no memory, and unmeasured it is more often slower than the CPU at decode, so it is left "
        "out when a GPU with memory of its own is there."
    ),
    numbers=(
        (
            "2 GiB free",
            "1 GiB headroom + 290 to 780 MiB CUDA context (measured) + the smallest compute buffer",
        ),
        ("61 graph splits per token for one idle backend", "Helldez/BigMoeOnEdge, measured"),
        ("decode on unified-memory GPUs 0.22x to 0.80x of the CPU", "Helldez/BigMoeOnEdge, measured"),
    ),
    abstains="No GPU: the plan is for the CPU and no device flag is printed.",
    references=("ggml/src/ggml-backend.cpp (b11312): op offload runs on the first backend that supports it",),
)


def _free(gpu: Gpu, problem: Problem) -> int:
    """Bytes that the plan may take: of a device that shares RAM no more than is available there."""
    own, available = gpu.total_bytes - used_before(gpu), problem.machine.ram.available_bytes
    return min(own, available) if gpu.unified and available is not None else own


def _usable(gpu: Gpu, problem: Problem) -> bool:
    """Whether the llama.cpp at hand has the device's backend; an unknown engine is assumed to."""
    engine = problem.machine.engine
    return engine is None or not engine.backends or gpu.backend is None or gpu.backend.value in engine.backends


def _out(gpu: Gpu, problem: Problem) -> tuple[Fate, str] | None:
    """Why a device does not take part, or None."""
    others = [g for g in problem.machine.gpus if _usable(g, problem) and _free(g, problem) >= SMALLEST_BYTES]
    if not _usable(gpu, problem):
        return Fate.UNSUPPORTED, f"the llama.cpp that was found has no {gpu.backend} backend"
    if _free(gpu, problem) < SMALLEST_BYTES:
        return Fate.DOES_NOT_FIT, f"{units.mib(_free(gpu, problem))} free, under {units.size(SMALLEST_BYTES)}"
    if gpu.unified and any(not other.unified for other in others):
        return Fate.SLOWER, "shares host RAM beside a GPU with memory of its own"
    return None


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Open ``devices``: all that can take part, then fewer and fewer of them, then none. Say who was left out."""
    used = [gpu for gpu in problem.machine.gpus if _out(gpu, problem) is None]
    left_out = tuple(
        Caution("device-left-out", f"{gpu.id} does not take part: {out[1]}.")
        for gpu in problem.machine.gpus
        if (out := _out(gpu, problem)) is not None
    )
    servers = problem.workload.rpc if any(gpu.backend is Backend.RPC for gpu in used) else ()
    return Proposal(domains=(("devices", _sets(used, problem)), ("rpc", (servers,))), cautions=left_out)


def _sets(gpus: list[Gpu], problem: Problem) -> tuple[tuple[str, ...], ...]:
    """All of them, then fewer and fewer, then none. The order within a set is by links, not by free memory: that of
    equal cards differs by what a desktop takes, and their order is the user's to know them by."""
    links = _links(gpus)

    def rank(gpu: Gpu) -> tuple[bool, float]:
        return gpu.backend is Backend.RPC, -links.get(gpu.id, 0.0)

    ordered = sorted(gpus, key=rank)
    kept = [gpu.id for gpu in sorted(gpus, key=lambda gpu: (*rank(gpu), -_free(gpu, problem)))]
    return tuple(tuple(gpu.id for gpu in ordered if gpu.id in kept[:n]) for n in _counts(len(kept)))


def _counts(n: int) -> tuple[int, ...]:
    """How many devices are tried: every number up to eight, above that the half of the last."""
    halves = []
    while n > EVERY_COUNT:
        halves.append(n)
        n //= 2
    return (*halves, *range(n, -1, -1))


def _links(gpus: list[Gpu]) -> dict[str, float]:
    """Links of the local devices in bytes per second; empty if one of them is not known or only assumed."""
    local = {gpu.id: gpu.h2d_pinned_bps for gpu in gpus if gpu.backend is not Backend.RPC}
    known = {name: link.value for name, link in local.items() if link and link.source is not Source.ASSUMED}
    return known if len(known) == len(local) else {}


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """One decision, with the devices left out as alternatives."""
    names = chosen.settings.devices
    gpus = problem.machine.gpus
    if not gpus:
        evidence: tuple[Evidence, ...] = (Evidence("GPUs found", 0, "devices", Source.REPORTED),)
        headline = "no GPU was found: everything runs on the CPU"
    else:
        evidence = tuple(Evidence(f"{gpu.id} free", _free(gpu, problem), "bytes", Source.REPORTED) for gpu in gpus)
        shown = ", ".join(f"{gpu.id} ({units.size(_free(gpu, problem))} free)" for gpu in gpus if gpu.id in names)
        headline = f"uses {shown}" if names else "everything runs on the CPU"
    losers = tuple(Alternative(gpu.id, out[0], None, out[1]) for gpu in gpus if (out := _out(gpu, problem)) is not None)
    more = next((found for found in reversed(draft.values("devices")) if set(found) > set(names)), None)
    if more is not None:
        other = versus(",".join(more), _on(more, draft, chosen, evaluate), chosen, problem.workload.goal)
        headline += f"; with {' and '.join(d for d in more if d not in names)}, too, {other.detail.split(':')[0]}"
        losers += (other,)
    return (Decision("devices", "devices", ",".join(names) or "none", headline, Confidence.DERIVED, evidence, losers),)


def _on(names: tuple[str, ...], draft: Draft, chosen: Candidate, evaluate: Evaluate) -> Candidate:
    """The choice on more devices, with as many expert blocks there as they hold."""
    more = replace(chosen.settings, devices=names, n_gpu_layers=draft.values("n_gpu_layers")[0], override_tensor=())
    blocks = sorted(draft.values("n_cpu_moe"))

    def held(n: int) -> bool:
        return evaluate(replace(more, n_cpu_moe=n)).runs

    fewest = bisect_left(blocks[:-1], True, key=held)
    return evaluate(replace(more, n_cpu_moe=blocks[fewest]))


RULE = Rule(DOC, propose, explain)
