"""How many states llama-server keeps to go back to."""

from __future__ import annotations

from dataclasses import replace

from planner.facts.model import Model
from planner.facts.reading import Source
from planner.plans.compare import versus
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, RuleDoc
from planner.plans.plan import Candidate
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule

DEFAULT = 32
STEPS = (32, 16, 8, 4, 2, 1, 0)

DOC = RuleDoc(
    id="checkpoints",
    title="As many context checkpoints as RAM holds beside the model, at most llama-server's 32 per slot",
    settings=("ctx_checkpoints",),
    what=(
        "Sliding windows and recurrent state cannot be rewound, so llama-server saves the whole state up to 32 "
        "times per slot. The plan keeps 32 where RAM holds them, and steps down to 16, 8, 4, 2, 1 or 0 where they "
        "would make it page, or push the weights out of page-locked memory. Checkpoints come before the prompt "
        "cache: without one, a changed prompt is computed again from its start."
    ),
    why=(
        "The checkpoints fill up in the first long conversations and are in no estimate of llama.cpp. They change "
        "how fast a repeated prompt starts, never the output."
    ),
    numbers=(
        ("32 per slot", "common/arg.cpp (b11549), --ctx-checkpoints default"),
        ("149.6 MiB x 128 = 18.7 GiB for 4 slots of a hybrid model", "unslothai/unsloth#11073"),
    ),
    abstains="The model keeps nothing that cannot be rewound: the flag is not printed.",
    references=("tools/server/server.cpp (b11434): checkpoints of the context",),
)


def _may_hold(model: Model) -> bool:
    """Whether a block has what cannot be rewound: a sliding window or a recurrent state."""
    return any(layer.window or layer.state_r or layer.state_s for layer in model.layers)


def _held(candidate: Candidate) -> int:
    """Bytes of the checkpoints."""
    return sum(term.n_bytes for term in candidate.memory.host.overhead if "checkpoint" in term.name)


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Open ``ctx_checkpoints``; the search raises it as far as RAM holds it beside the rest.

    Where all can be rewound the default stays, which no flag is printed for.
    """
    held = _may_hold(problem.model) and _held(evaluate(replace(draft.settings(), ctx_checkpoints=DEFAULT)))
    return Proposal(domains=(("ctx_checkpoints", STEPS if held else (DEFAULT,)),))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """The number, what it takes, and what the default would have done."""
    settings = chosen.settings
    usual = evaluate(replace(settings, ctx_checkpoints=DEFAULT))
    if not _held(usual):
        return ()
    value = settings.ctx_checkpoints
    losers: tuple[Alternative, ...] = ()
    if value == DEFAULT:
        headline = "llama-server's default; RAM holds the states beside the model"
    else:
        headline = f"what RAM leaves: {DEFAULT} states would take {_held(usual) / 2**30:,.1f} GiB"
        losers = (versus(DEFAULT, usual, chosen, problem.workload.goal),)
    evidence = (
        Evidence("checkpoints", _held(chosen), "bytes", Source.DERIVED),
        Evidence(f"{DEFAULT} checkpoints", _held(usual), "bytes", Source.DERIVED),
    )
    return (Decision("checkpoints", "ctx_checkpoints", value, headline, Confidence.DERIVED, evidence, losers),)


RULE = Rule(DOC, propose, explain)
