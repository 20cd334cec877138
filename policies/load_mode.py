"""How the weights that stay in RAM are loaded."""

from __future__ import annotations

from dataclasses import replace

from planner import units
from planner.cost.host import locks, margin_bytes
from planner.facts.reading import Source
from planner.plans.compare import versus
from planner.plans.decision import Confidence, Decision, Evidence, RuleDoc
from planner.plans.plan import Candidate, Verdict
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule
from planner.plans.settings import LoadMode

DOC = RuleDoc(
    id="load-mode",
    title="Pinned memory (load mode none) when RAM can really hold it, else the mapped file",
    settings=("load_mode", "repack"),
    what=(
        "When a GPU takes part and weights stay in RAM, load mode none is chosen if everything that cannot be "
        "evicted then fits in available RAM with a margin: 4 % where the system swaps, 10 % where it compresses, "
        "20 % where it kills, 15 % where that is unknown, at least 256 MiB, and under WDDM no more than half of RAM "
        "is page-locked. Otherwise the file is mapped. On the CPU alone llama.cpp keeps a second, repacked copy of "
        "the weights; where RAM cannot hold it beside the rest, repacking is turned off (--no-repack)."
    ),
    why=(
        "Load mode none reads the experts into page-locked memory, from which the GPU copies up to three times "
        "faster; prefill lives on that copy. But page-locked memory cannot be evicted: short of RAM the system "
        "swaps or kills, where a mapped file only reads again. With everything on the GPU or on the CPU alone "
        "there is nothing to gain, and the mapped file starts at once."
    ),
    numbers=(
        ("none 10,292, mmap 5,345 tok/s prefill for the same plan", "qwen3-30b-a3b, llama.cpp b11434"),
        ("pinned 55.1, pageable 16.5 GB/s to the GPU", "the same machine, PCIe 5.0 x16"),
        ("82 GB file, 62 GB RAM: none 8 to 16 tok/s, mmap 16.8", "public report on qwen4exp"),
        ("margins 4/10/20/15 %", "Helldez/BigMoeOnEdge, policy defaults"),
        ("46.4 of 87 GiB could be registered with 96 GiB of RAM", "zhaoyilun/moe-working-set-16gb, Windows"),
        ("13.4 GB repacked copy beside the mapped file", "public report, CPU-only mmap"),
    ),
    abstains="Never: a load mode is always printed, because auto differs by build.",
    references=("ggml/src/ggml-cuda/ggml-cuda.cu (b11312): pinning that fails turns pageable silently",),
)


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Open ``load_mode`` where a GPU may leave weights in RAM; set the margin of the host."""
    ram = problem.machine.ram
    available = ram.total_bytes if ram.available_bytes is None else ram.available_bytes
    reserve = (*draft.reserve, ("host", margin_bytes(available, ram.overflow)))
    modes = (LoadMode.MMAP, LoadMode.NONE) if draft.values("devices")[0] else (LoadMode.MMAP,)
    return Proposal(domains=(("load_mode", modes), ("repack", (True, False))), reserve=reserve)


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """Pinned and mapped bytes of the choice, and the other mode's fate."""
    settings, host, ram = chosen.settings, chosen.memory.host, problem.machine.ram
    available = Evidence("RAM available", ram.available_bytes, "bytes", Source.REPORTED)
    evidence = (
        Evidence("pinned", host.pinned_bytes, "bytes", Source.DERIVED),
        Evidence("mapped", host.mapped_bytes, "bytes", Source.DERIVED),
        Evidence("margin of RAM", dict(draft.reserve).get("host"), "bytes", Source.ASSUMED),
        *((available,) if ram.available_bytes is not None else ()),
    )
    other = LoadMode.MMAP if settings.load_mode is LoadMode.NONE else LoadMode.NONE
    losers = tuple(
        versus(mode.value, evaluate(replace(settings, load_mode=mode)), chosen, problem.workload.goal)
        for mode in draft.values("load_mode")
        if mode is other
    )
    held, mapped = host.resident
    if settings.load_mode is LoadMode.NONE:
        headline = f"{units.mib(host.pinned_bytes)} page-locked: the GPU copies experts from there at full link speed"
    elif chosen.verdict is Verdict.PAGES:
        headline = f"mapped: RAM holds {units.size(held)} of {units.size(mapped)}, the rest is read from disk as used"
    elif losers and losers[0].outcome.value == "does_not_fit":
        lost = "page-locking them" if locks(settings, problem.machine) else "a copy of them"
        headline = f"mapped: {units.mib(host.mapped_bytes)} stay evictable; {lost} does not fit in RAM"
    else:
        headline = f"mapped: {units.mib(host.mapped_bytes)} of the file, evictable and loaded at once"
    if settings.load_mode is LoadMode.MMAP:
        headline += _tight(chosen, dict(draft.reserve).get("host", 0))
    mode = Decision("load-mode", "load_mode", settings.load_mode.value, headline, Confidence.DERIVED, evidence, losers)
    return (mode,) if settings.repack else (mode, _unpacked(problem, chosen, evaluate))


def _tight(chosen: Candidate, margin: int) -> str:
    """What a mapping risks that leaves less RAM than the margin; "" where it leaves more, is too small, or pages."""
    host = chosen.memory.host
    spare = host.headroom_bytes
    if spare is None or not 0 <= spare < margin or host.mapped_bytes < margin - spare:
        return ""
    return (
        f"; {units.mib(spare)} of RAM stay beside it, under the margin of {units.mib(margin)}: what other programs "
        "take beyond that is read from the disk again"
    )


def _unpacked(problem: Problem, chosen: Candidate, evaluate: Evaluate) -> Decision:
    """Why the weights are not repacked for the CPU."""
    other = evaluate(replace(chosen.settings, repack=True))
    copied = other.memory.host.unevictable_bytes - chosen.memory.host.unevictable_bytes
    return Decision(
        "load-mode",
        "repack",
        False,
        f"the repacked copy of {units.mib(copied)} does not fit in RAM beside the rest",
        Confidence.DERIVED,
        (Evidence("repacked copy", copied, "bytes", Source.DERIVED),),
        (versus(True, other, chosen, problem.workload.goal),),
    )


RULE = Rule(DOC, propose, explain)
