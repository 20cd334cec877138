"""How many tokens are computed at once."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from planner import units
from planner.facts.reading import Source
from planner.plans.compare import given, versus
from planner.plans.decision import Confidence, Decision, Evidence, RuleDoc
from planner.plans.plan import Candidate
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule

DEFAULT = 512
LARGER = (1024, 2048, 4096, 8192)
SMALLER = (256, 128, 64)
STEP = 256
STRETCH = 9 / 8
"""The largest ubatch that was measured may grow by an eighth where it then holds the whole prompt."""

DOC = RuleDoc(
    id="ubatch",
    title="The ubatch whose turn is fastest after paying for its compute buffer in expert layers",
    settings=("n_ubatch", "n_batch"),
    what=(
        "512 to 8,192 are tried, up to the first that holds the whole prompt, each with the placement that "
        "still fits beside its compute buffer, and 256, 128 and 64 for what does not fit otherwise. Above 512 a "
        "size shrinks to the least multiple of 256 that needs no more passes over the prompt: 9,000 tokens take two "
        "of 4,608 or of 8,192. One pass of up to 9,216 is tried, too. The fastest "
        "turn wins; within half a percent 512 does, then the next larger. -b is raised to at least -ub, and "
        "never under llama.cpp's 2,048."
    ),
    why=(
        "For a batch of 32 tokens or more the experts that live in RAM are copied to the GPU once per ubatch, so "
        "a larger ubatch divides that copy among more tokens. Its compute buffer grows in proportion and pushes "
        "expert layers out, which decode then pays for in every token: the two are one decision. Decode itself "
        "does not depend on the ubatch."
    ),
    numbers=(
        (
            "ubatch 512 6,923, ubatch 2048 10,202 tok/s prefill at -ncmoe 28",
            "qwen3-30b-a3b, llama.cpp b11434",
        ),
        ("time per ubatch = 4.284 s + 1.385 ms per token, residual under 5 ms", "177 B MoE, 59.5 GB in RAM"),
        (
            "the count of ubatches is rounded up: 3 of 7,168 lose to 2 of 8,192 on 16,363 tokens",
            "the same runs",
        ),
    ),
    abstains="Never: 512 is printed where nothing else is better.",
    references=("ggml/src/ggml-backend.cpp (b11312): op offload from 32 tokens on",),
)


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Open ``n_ubatch``; sizes past the first that holds the prompt would only cost memory."""
    longest = draft.values("n_ctx")[-1]
    useful = [size for size in useful_sizes(problem.workload.prompt_tokens) if size <= longest]
    return Proposal(domains=(("n_ubatch", (DEFAULT, *useful, *SMALLER)), ("n_batch", (2048,))))


def useful_sizes(prompt: int) -> tuple[int, ...]:
    """The least sizes above 512 that divide a prompt into as many ubatches as those tried do, ascending."""
    passes = {ceil(prompt / size) for size in LARGER if size // 2 < prompt}
    passes |= {1} if prompt <= LARGER[-1] * STRETCH else set()
    sizes = {STEP * ceil(prompt / n / STEP) for n in passes}
    return tuple(sorted(size for size in sizes if size > DEFAULT))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """The size against its neighbours at the same placement, and the batch beside it."""
    settings, work = chosen.settings, problem.workload
    passes = -(-work.prompt_tokens // settings.n_ubatch)
    compute = sum(term.n_bytes for device in chosen.memory.devices for term in device.compute)
    compute = compute or sum(term.n_bytes for term in chosen.memory.host.compute)
    evidence = (
        Evidence("prompt", work.prompt_tokens, "tokens", given("prompt_tokens", work=work)),
        Evidence("passes over the prompt", passes, "ubatches", Source.DERIVED),
        Evidence("compute buffer", compute, "bytes", Source.DERIVED),
    )
    near = [size for size in sorted(draft.values("n_ubatch")) if size != settings.n_ubatch]
    near = [size for size in near if settings.n_ubatch // 2 <= size <= settings.n_ubatch * 2]
    losers = tuple(
        versus(size, evaluate(replace(settings, n_ubatch=size, n_batch=max(2048, size))), chosen, work.goal)
        for size in near
    )
    sized = Decision(
        "ubatch",
        "n_ubatch",
        settings.n_ubatch,
        f"{passes} {'pass' if passes == 1 else 'passes'} over a prompt of {work.prompt_tokens:,}; "
        f"{units.mib(compute)} of compute buffer",
        Confidence.ASSUMED,
        evidence,
        losers,
    )
    batch = Decision(
        "ubatch",
        "n_batch",
        settings.n_batch,
        "at least the ubatch; llama.cpp's default is 2,048",
        Confidence.DERIVED,
        (Evidence("n_ubatch", settings.n_ubatch, "tokens", Source.DERIVED),),
    )
    return (sized, batch)


RULE = Rule(DOC, propose, explain)
