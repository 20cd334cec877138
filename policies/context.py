"""How many tokens of context, for how many slots."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from planner import units
from planner.facts.reading import Source
from planner.plans.compare import versus
from planner.plans.decision import Confidence, Decision, Evidence, RuleDoc
from planner.plans.plan import Candidate, Caution
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule
from planner.plans.settings import Settings

LADDER = (4096, 8192, 16384, 32768, 65536, 131072)
USUAL = 16384
PAD = 256

DOC = RuleDoc(
    id="context",
    title="The context asked for; else the longest that costs no layer its place, from 16,384 up",
    settings=("n_ctx", "n_parallel"),
    what=(
        "--ctx is kept as it is (padded to 256, as llama.cpp does). Without it the context starts at 16,384 "
        "tokens, or at what prompt and answer need in every slot, and climbs 32,768, 65,536, 131,072 only while "
        "no layer or expert has to leave the GPU for it. It never exceeds the training context unasked. The "
        "context is the whole server's: each of N slots gets n_ctx / N."
    ),
    why=(
        "The KV cache of a long context competes with expert layers for the same VRAM, and a context that is "
        "not used costs speed in every token. Taking the training context by default is the classic way to run "
        "out of memory; taking llama.cpp's 4,096 fallback cuts answers short."
    ),
    numbers=(
        ("64K more tokens cost 834 MiB at q8_0/q4_0 on a 48-layer hybrid", "zhaoyilun/moe-working-set-16gb"),
        ("any MoE larger than VRAM ends at -c 4096 under --fit", "common/fit.cpp (b11312)"),
        ("padded to 256", "src/llama-context.cpp (b11312)"),
    ),
    abstains="Never: a context is always decided.",
    references=("ggml-org/llama.cpp#18097: automatic context pushes layers out of VRAM",),
)


def _padded(tokens: int) -> int:
    return -(-tokens // PAD) * PAD


def _needed(problem: Problem) -> int:
    work = problem.workload
    return _padded((work.prompt_tokens + work.answer_tokens) * work.n_parallel)


def _trained(problem: Problem) -> int:
    return problem.model.n_ctx_train * problem.workload.n_parallel


def _steps(problem: Problem) -> tuple[int, ...]:
    """Contexts to try, shortest first: at least what the turn needs and the usual, at most the training one."""
    needed, trained = _needed(problem), _padded(_trained(problem))
    floor = max(needed, min(USUAL, trained))
    return (floor, *(step for step in LADDER if floor < step <= trained))


def _host_blocks(problem: Problem, draft: Draft, evaluate: Evaluate, n_ctx: int) -> int | None:
    """The fewest blocks whose experts must be in RAM at ``n_ctx``; None if even all of them are not enough."""
    model = problem.model
    plain = Settings(
        n_ctx=n_ctx,
        n_gpu_layers=model.n_layer + 1,
        n_parallel=problem.workload.n_parallel,
        devices=draft.values("devices")[0],
        cache_ram_mib=0,
    )

    def fits(blocks: int) -> bool:
        return not evaluate(replace(plain, n_cpu_moe=blocks)).shortfalls

    if fits(0):
        return 0
    blocks = range(1, model.n_layer + 1) if model.is_moe else range(0)
    first = bisect_left(blocks, True, key=fits)
    return blocks[first] if first < len(blocks) else None


def _longest_free(problem: Problem, draft: Draft, evaluate: Evaluate) -> int:
    """The last step that needs no more blocks in RAM than the first."""
    best, *longer = _steps(problem)
    if not draft.values("devices")[0]:
        return best
    base = _host_blocks(problem, draft, evaluate, best)
    for step in longer:
        if base is None or _host_blocks(problem, draft, evaluate, step) != base:
            break
        best = step
    return best


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Decide ``n_ctx`` and ``n_parallel``."""
    work = problem.workload
    asked = work.n_ctx
    n_ctx = _padded(asked) if asked else _longest_free(problem, draft, evaluate)
    cautions = []
    if n_ctx > _trained(problem) > 0:
        cautions.append(
            Caution(
                "context-beyond-training",
                f"{units.count(n_ctx)} tokens are more than the {units.count(problem.model.n_ctx_train)} "
                "the model was trained on: answers degrade unless its RoPE scaling is set.",
            )
        )
    if n_ctx < _needed(problem):
        cautions.append(
            Caution(
                "context-shorter-than-turn",
                f"prompt and answer need {units.count(_needed(problem))} tokens over {work.n_parallel} slot(s), "
                f"the context holds {units.count(n_ctx)}: such a turn is cut.",
            )
        )
    return Proposal(domains=(("n_ctx", (n_ctx,)), ("n_parallel", (work.n_parallel,))), cautions=tuple(cautions))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """Say whose wish the context is, and what the next step would do with the same placement."""
    settings, work = chosen.settings, problem.workload
    kv = sum(term.n_bytes for device in chosen.memory.devices for term in device.context)
    kv += sum(term.n_bytes for term in chosen.memory.host.context)
    source = Source.USER if work.n_ctx else Source.DERIVED
    evidence = (
        Evidence("context asked", work.n_ctx or "not given", "tokens", source),
        Evidence("prompt + answer", _needed(problem), "tokens", Source.USER),
        Evidence("training context", problem.model.n_ctx_train, "tokens", Source.REPORTED),
        Evidence("KV cache and state", kv, "bytes", Source.DERIVED),
    )
    if work.n_ctx:
        headline = f"asked for; its KV cache takes {units.mib(kv)}"
    elif settings.n_ctx > _steps(problem)[0]:
        headline = f"the longest step that moves nothing off the GPU; its KV cache takes {units.mib(kv)}"
    else:
        headline = f"holds the turn of {units.count(_needed(problem))}; its KV cache takes {units.mib(kv)}"
    longer = [step for step in LADDER if settings.n_ctx < step <= max(_trained(problem), settings.n_ctx)][:1]
    losers = tuple(versus(step, evaluate(replace(settings, n_ctx=step)), chosen, work.goal) for step in longer)
    n_ctx = Decision("context", "n_ctx", settings.n_ctx, headline, Confidence.DERIVED, evidence, losers)
    slots = Decision(
        "context",
        "n_parallel",
        settings.n_parallel,
        f"{settings.n_parallel} slot(s) of {units.count(settings.n_ctx // settings.n_parallel)} tokens; "
        "llama-server alone would open 4",
        Confidence.DERIVED,
        (Evidence("slots asked", work.n_parallel, "slots", Source.USER),),
    )
    return (n_ctx, slots)


RULE = Rule(DOC, propose, explain)
