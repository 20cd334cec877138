"""Whether a pool of experts in VRAM serves those that stay in RAM, and how large it is."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final

from planner import units
from planner.cost.pool import Pools, expected
from planner.cost.pool_gain import Gain, gain, largest, spare, usable
from planner.facts.reading import Source
from planner.facts.routing import PRIOR_BAND, Ground
from planner.plans.compare import versus
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, Fate, RuleDoc
from planner.plans.plan import Candidate
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule
from planner.plans.settings import SplitMode
from planner.units import MIB

STEP_MIB: Final = 16
"""Coarser steps leave up to a twelfth of a small pool unused."""
FLAG: Final = "--moe-cache-mib"
SINCE: Final = 11505
"""First build seen with it (ggml-org/llama.cpp#29887)."""

DOC = RuleDoc(
    id="pool",
    title="A pool of experts in VRAM where its hits save more than its misses and read-backs cost",
    settings=("moe_cache_mib",),
    what=(
        "llama.cpp builds that list --moe-cache-mib keep recently used experts of the blocks in RAM in VRAM, under "
        "one LRU per kind of block. For the fastest placement without one, and for those with more experts in RAM "
        "and a smaller ubatch, the search gives the pool all VRAM that the headroom leaves, never less than the "
        "experts of one token, and compares turns. The hit rate comes from a recording (--routing), replayed where "
        "it has an order, else from its counts as a lower bound; the pool must win by 2 or 5 % accordingly. Of "
        "placements within 3 % of the best one, all experts in RAM under one pool are taken. Without a recording "
        "there is no pool: the plan says what a prior promises, marked assumed, and how to record. With other builds "
        "it says what a newer one would give."
    ),
    why=(
        "With a pool every miss is uploaded and the CPU computes no experts, so hit rate and link decide: it pays "
        "from a hit rate of one minus what the experts cost in RAM, less the read-back per block, over what "
        "uploading all of them costs. Below one token's experts less a block's an LRU hits nothing. Prompts pass the "
        "pool by (batches of more than 32 tokens only read it), and it stays warm from answer to answer. Whole layers "
        "hit exactly the share that is held; a pool of the same bytes hits two to seven times as much, but pays for "
        "it per token. What decode spends on attention grows with depth and is the same with and without, so the "
        "gain shrinks. A prior is not enough to act on: mixtures with random routers hit up to 3 points less than its "
        "band, a pool that misses takes decode to a half or, behind a slow link, a quarter, and recording takes "
        "minutes."
    ),
    numbers=(
        ("40.7 to 67.7 tok/s with 4,096 MiB; 50.2 with 3,984 MiB of whole layers", "qwen3-30b-a3b Q4_0, RTX 4080"),
        ("39.5 tok/s at 21 % hits, 39.6 without a pool, 145 at 98 %", "qwen3-30b-a3b, link 55 GB/s, b11549"),
        ("a miss: its bytes at the pinned rate and 4 us per matrix; a served block: 32 us", "benchmarks/pool, b11549"),
        ("35 to 8 tok/s or less with 8 GiB behind PCIe x4", "an external GPU, public report"),
        ("+23.9 % at 16k, +4.6 % at 262k of context, the same 8 GiB", "177 B MoE on an RTX 4080 SUPER, fixed set"),
        ("hits of an LRU that holds 10/20/30/50 %: .50/.74/.88/.96", "replay of qwen3-30b-a3b at 6 of 128 experts"),
        (f"prior: 1 - (1 - share)^6, between ^{PRIOR_BAND[0]} and ^{PRIOR_BAND[1]:g}", "ten published hit rates"),
    ),
    abstains=(
        "No routed experts, no GPU, a GPU that shares RAM or is remote, split mode tensor, or a draft model: together "
        "with one the pool is not verified."
    ),
    references=("src/llama-moe-cache.cpp (b11549)", "ggml-org/llama.cpp#29887, #30112"),
)


def _missing(problem: Problem) -> str:
    """Why the llama.cpp that will run has no pool, or nothing. A pool is only for one that lists the flag."""
    target, engine = problem.workload.target_build, problem.machine.engine
    if target is not None:
        return "" if target >= SINCE else f"b{target} has no {FLAG}, b{SINCE} and later have"
    if engine is not None and FLAG in engine.flags:
        return ""
    if engine is None or engine.build is None:
        return f"no llama.cpp that lists {FLAG} was found"
    return f"b{engine.build} does not list {FLAG}, b{SINCE} and later do"


def _steps(problem: Problem, draft: Draft) -> tuple[int, ...]:
    """Sizes in MiB that make sense on the devices at hand, ascending; empty where a pool cannot be."""
    model, machine, devices = problem.model, problem.machine, draft.values("devices")[0]
    pins = dict(problem.workload.pins)
    tensor = pins.get("split_mode") == SplitMode.TENSOR
    if not model.is_moe or not devices or tensor or "spec_type" in pins or not usable(machine, devices):
        return ()
    least = ceil(Pools(model, machine).cycle_bytes() / MIB / STEP_MIB)
    room = sum(gpu.total_bytes for gpu in machine.gpus if gpu.id in devices)
    most = min(model.expert_bytes, room) // MIB // STEP_MIB + 1
    return tuple(STEP_MIB * n for n in range(max(least, 1), most + 1))


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Open ``moe_cache_mib`` where the engine has a pool and a recording says what it hits; off comes first."""
    closed = _missing(problem) or _ground(problem) is Ground.PRIOR
    steps = () if closed else _steps(problem, draft)
    return Proposal(domains=(("moe_cache_mib", (0, *steps)),))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """The pool with and against what it replaced; or what the largest that fits would have done."""
    settings = chosen.settings
    if settings.moe_cache_mib:
        return (_taken(problem, chosen, evaluate),)
    steps = _steps(problem, draft)
    blocks = draft.values("n_cpu_moe")
    if not steps or not settings.n_cpu_moe or settings.n_gpu_layers <= problem.model.n_layer:
        return ()
    places = dict.fromkeys((blocks[-1], (settings.n_cpu_moe + blocks[-1]) // 2, settings.n_cpu_moe))
    tried = (evaluate(replace(settings, n_cpu_moe=n, override_tensor=())) for n in places)
    base = next((candidate for candidate in tried if candidate.runs), chosen)
    size = largest(steps, spare(base, draft.reserve) // MIB)
    if not size:
        return (_no_room(problem, base, draft, steps[0]),)
    pooled = evaluate(replace(base.settings, moe_cache_mib=size))
    return (_declined(problem, chosen, pooled, base),)


def _taken(problem: Problem, chosen: Candidate, evaluate: Evaluate) -> Decision:
    settings, goal = chosen.settings, problem.workload.goal
    without = evaluate(replace(settings, moe_cache_mib=0))
    won = gain(problem.model, problem.machine, chosen, without)
    other = evaluate(replace(settings, moe_cache_mib=settings.moe_cache_mib // 2))
    headline = (
        f"{units.count(settings.moe_cache_mib)} MiB hold {won.share:.0%} of the experts in RAM: "
        f"{_rate(won.hit_rate)} hits expected, worth it from {_rate(won.break_even)}"
    )
    losers = (versus(0, without, chosen, goal), versus(settings.moe_cache_mib // 2, other, chosen, goal))
    confidence = _CONFIDENCE[_ground(problem)]
    return Decision(
        "pool", "moe_cache_mib", settings.moe_cache_mib, headline, confidence, _evidence(problem, won), losers
    )


def _declined(problem: Problem, chosen: Candidate, pooled: Candidate, base: Candidate) -> Decision:
    size, missing = pooled.settings.moe_cache_mib, _missing(problem)
    lost = gain(problem.model, problem.machine, pooled, base)
    now, then = chosen.speed.decode_tps.mid, pooled.speed.decode_tps.mid
    speeds = "decode {} instead of {} tok/s".format(*units.apart(then, now))
    if then <= now and (missing or _ground(problem) is Ground.PRIOR):
        headline = f"no pool: even {units.count(size)} MiB would make it slower, {speeds}"
        loser = versus(size, pooled, chosen, problem.workload.goal)
    elif missing:
        headline = f"{missing}: with {units.count(size)} MiB of it {speeds}, {_rate(lost.hit_rate)} hits expected"
        loser = Alternative(size, Fate.UNSUPPORTED, None, f"{missing}; predicted {speeds}")
    elif _ground(problem) is Ground.PRIOR:
        headline = f"none without a recording (moeplan routing): a prior gives {units.count(size)} MiB {speeds}"
        loser = Alternative(size, Fate.UNSAFE, None, f"which experts text selects is not known; {speeds} by a prior")
    else:
        hits = f"hit {_rate(lost.hit_rate)}, worth it from {_rate(lost.break_even)}"
        headline = f"no pool: {units.count(size)} MiB of it {hits}; {speeds}"
        loser = versus(size, pooled, chosen, problem.workload.goal)
    return Decision(
        "pool", "moe_cache_mib", 0, headline, _CONFIDENCE[_ground(problem)], _evidence(problem, lost), (loser,)
    )


def _rate(share: float) -> str:
    """A share in percent that says 100 only where it is."""
    return "over 99%" if 0.995 <= share < 1.0 else f"{share:.0%}"


def _no_room(problem: Problem, base: Candidate, draft: Draft, least: int) -> Decision:
    room = max(spare(base, draft.reserve), 0)
    evidence = (
        Evidence(
            "experts that one token uses", Pools(problem.model, problem.machine).cycle_bytes(), "bytes", Source.DERIVED
        ),
        Evidence("VRAM that can be left for a pool", room, "bytes", Source.DERIVED),
    )
    headline = f"no pool: {units.count(least)} MiB hold one token's experts, {units.mib(room)} are left for them"
    return Decision("pool", "moe_cache_mib", 0, headline, Confidence.DERIVED, evidence)


_CONFIDENCE: Final = {
    Ground.REPLAY: Confidence.MEASURED,
    Ground.COUNTS: Confidence.DERIVED,
    Ground.PRIOR: Confidence.ASSUMED,
}
_SOURCE: Final = {Ground.REPLAY: Source.MEASURED, Ground.COUNTS: Source.DERIVED, Ground.PRIOR: Source.ASSUMED}
_WORDS: Final = {
    Ground.REPLAY: "hit rate, recording replayed",
    Ground.COUNTS: "hit rate at least, from counts",
    Ground.PRIOR: "hit rate, prior",
}


def _ground(problem: Problem) -> Ground:
    return expected(problem.model).ground


def _evidence(problem: Problem, found: Gain) -> tuple[Evidence, ...]:
    ground = _ground(problem)
    words = _WORDS[ground]
    if ground is Ground.PRIOR:
        low, high = (1.0 - (1.0 - found.share) ** power for power in PRIOR_BAND)
        words = f"{words} ({low:.1%} to {high:.1%})"
    return (
        Evidence("experts that one token uses in the blocks it serves", found.cycle_bytes, "bytes", Source.DERIVED),
        Evidence("share of their experts that is held", round(100 * found.share, 1), "%", Source.DERIVED),
        Evidence(words, round(100 * found.hit_rate, 1), "%", _SOURCE[ground]),
        Evidence("break-even", round(100 * found.break_even, 1), "% of hits", Source.DERIVED),
    )


RULE = Rule(DOC, propose, explain)
