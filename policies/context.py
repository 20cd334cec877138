"""How many tokens of context."""

from __future__ import annotations

from dataclasses import replace

from planner import units
from planner.facts.reading import Source
from planner.plans.compare import given, versus
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, Fate, RuleDoc
from planner.plans.plan import Candidate, Caution
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule

LADDER = (4096, 8192, 16384, 32768, 65536, 131072)
LONGEST_IN_RAM = 32768
PAD = 256

DOC = RuleDoc(
    id="context",
    title="The context asked for; else the longest whose turn takes at most 5 % longer than with the shortest",
    settings=("n_ctx",),
    what=(
        "--ctx is kept as it is (padded to 256, as llama.cpp does). Without it every step from what prompt and "
        "answer need in every slot up to 131,072 tokens is planned in full, and the longest is taken whose turn "
        "takes at most 5 % longer than with the shortest; without a GPU the steps end at 32,768, because the cache "
        "then takes RAM from everything else. It never exceeds the training context unasked. The "
        "context is the whole server's: each of N slots gets n_ctx / N."
    ),
    why=(
        "The KV cache of a long context competes with expert layers for the same VRAM, and its masks with the "
        "ubatch. Taking the training context by default is the classic way to run out of memory; taking "
        "llama.cpp's 4,096 fallback cuts answers short. llama-server gives a slot no more than the training "
        "context, so what is longer is paid for and not used."
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
    """The training context of every slot, rounded down to a whole page of cells."""
    return max(problem.model.n_ctx_train // PAD, 1) * PAD * problem.workload.n_parallel


def _steps(problem: Problem, draft: Draft) -> tuple[int, ...]:
    """Contexts to try, shortest first: from the first step that holds the turn to the training context."""
    needed, trained = _needed(problem), _trained(problem)
    longest = LADDER[-1] if draft.values("devices")[0] else LONGEST_IN_RAM
    if needed >= trained:
        return (trained,)
    steps = {step for step in (*LADDER, trained) if needed <= step <= min(trained, longest)}
    return tuple(sorted(steps)) or (needed,)


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Decide ``n_ctx``."""
    work = problem.workload
    asked = work.n_ctx
    steps = (_padded(asked),) if asked else _steps(problem, draft)
    cautions = []
    if steps[0] > _trained(problem):
        cautions.append(
            Caution(
                "context-beyond-training",
                f"llama-server gives a slot at most the {units.count(problem.model.n_ctx_train)} tokens the model was "
                "trained on: the rest of the cache is paid for and not used.",
            )
        )
    if steps[0] < _needed(problem):
        cautions.append(
            Caution(
                "context-shorter-than-turn",
                f"prompt and answer need {units.counted(_needed(problem), 'token')}, the context holds "
                f"{units.count(steps[0])}: such a turn is cut.",
            )
        )
    return Proposal(domains=(("n_ctx", steps),), cautions=tuple(cautions))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """Say whose wish the context is, and what the next step would do with the same placement."""
    settings, work = chosen.settings, problem.workload
    kv = sum(term.n_bytes for device in chosen.memory.devices for term in device.context)
    kv += sum(term.n_bytes for term in chosen.memory.host.context)
    source = Source.USER if work.n_ctx else Source.DERIVED
    evidence = (
        *((Evidence("context asked", work.n_ctx, "tokens", source),) if work.n_ctx else ()),
        Evidence("prompt + answer", _needed(problem), "tokens", given("prompt_tokens", "answer_tokens", work=work)),
        Evidence("training context", problem.model.n_ctx_train, "tokens", Source.REPORTED),
        Evidence("KV cache and state", kv, "bytes", Source.DERIVED),
    )
    if work.n_ctx:
        headline = f"asked for; its cache takes {units.mib(kv)}"
    elif settings.n_ctx > _needed(problem):
        headline = (
            f"the longest that costs little: the turn needs {units.count(_needed(problem))}; {units.mib(kv)} of cache"
        )
    else:
        headline = f"as long as the model was trained for; {units.mib(kv)} of cache"
    longer = [step for step in LADDER if settings.n_ctx < step <= max(_trained(problem), settings.n_ctx)][:1]
    losers = tuple(_beside(versus(step, evaluate(replace(settings, n_ctx=step)), chosen, work.goal)) for step in longer)
    return (Decision("context", "n_ctx", settings.n_ctx, headline, Confidence.DERIVED, evidence, losers),)


def _beside(longer: Alternative) -> Alternative:
    """What does not fit beside the chosen placement may fit beside another one, for its price."""
    if longer.outcome is not Fate.DOES_NOT_FIT:
        return longer
    return replace(longer, detail=f"beside these experts and this ubatch {longer.detail}")


RULE = Rule(DOC, propose, explain)
