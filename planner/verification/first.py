"""The first answer: what the user sees, then a long prompt, where a plan that is too tight shows itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner import units
from planner.verification.texts import PROSE, QUESTION
from planner.verify.blocks import TOKENS

if TYPE_CHECKING:
    from planner.facts.observed import Answer, Placement
    from planner.plans.plan import Candidate
    from planner.plans.settings import Settings
    from planner.search import Pricing
    from planner.verification.engine import Live, Trouble
    from planner.verification.listener import Listener

DEPTH: Final = 8192 + 512
"""Short prompts prove nothing: runs of one plan differed by a factor of several (one 16 GB card). A plan is looked at
past 8,192 tokens, or as far as its context goes."""
BUILT_IN_TOKENS: Final = 128
LONG_SHARE: Final = 0.25
"""Part of the budget that the long prompt may take."""
SPARE: Final = 16
"""Tokens of a slot that stay free."""
LEAST_PROMPT: Final = 128
LEAST_SLOT: Final = 64
"""Tokens of a slot that hold our question in a chat template (about 30), and enough of an answer to time it."""
LEAST_ANSWER: Final = 8


@dataclass(frozen=True, slots=True)
class Seen:
    """What the first look at one plan gave.

    Args:
        answer: of the user's question.
        long: of the long prompt; None if there was no room or no time for one.
        spent: the engine may still compute a prompt that nobody waits for: it must be started anew.
        predicted: the candidate, priced for what ``measured`` had to do.
        prose: tokens to make prompts from.
    """

    answer: Answer
    long: Answer | None
    predicted: Candidate
    placement: Placement
    prose: tuple[int, ...]
    notes: tuple[str, ...]
    spent: bool = False

    @property
    def measured(self) -> Answer:
        """The answer that the prediction is held against."""
        return self.long or self.answer


def look(live: Live, pricing: Pricing, prompt: str | None, budget_s: float, listener: Listener) -> Seen | Trouble:
    """Ask the first question, then the long one.

    Args:
        prompt: the user's question; None asks one of ours.
    """
    from planner.facts.observed import Answer
    from probes.session import Down, Question

    work = pricing.problem.workload
    asked = prompt if prompt is not None else QUESTION
    n_predict = BUILT_IN_TOKENS if prompt is None else work.answer_tokens
    prose = live.session.tokenize(PROSE)
    own = live.session.tokenize(asked)
    for found in (prose, own):
        if isinstance(found, Down):
            return live.trouble(found)
    assert isinstance(prose, tuple) and isinstance(own, tuple)
    n_predict = min(n_predict, slot_tokens(live.candidate.settings) - len(own) - SPARE)
    if n_predict < LEAST_ANSWER:
        return _too_long(live, len(own))
    first = live.ask(Question(asked, n_predict, chat=True), len(own), listener.hear)
    listener.heard()
    if not isinstance(first, Answer):
        return first
    rate = "" if first.decode_tps is None else f", then {first.decode_tps:,.1f} tok/s"
    listener.note(f"first token after {first.first_s:.2f} s{rate}")
    n_long, note = _long(live, pricing, first, budget_s)
    long = None
    if n_long:
        listener.note(f"looking at a prompt of {n_long:,} tokens")
        question = Question(filled(prose, n_long), TOKENS, exact=True)
        patience_s = 2.0 * LONG_SHARE * budget_s
        found_long = live.ask(question, n_long, lambda piece: None, patience_s)
        if isinstance(found_long, Answer):
            long = found_long
        elif not found_long.limit:
            return found_long
        else:
            note = f"a prompt of {n_long:,} tokens took over {patience_s:.0f} s: speed at depth was not looked at"
    live.watch.sampler.take()
    measured = long or first
    predicted = pricing.at(live.candidate.settings, measured.prompt_n, measured.predicted_n)
    placement = live.session.placement()
    notes = (note, _unpinned(placement), _elsewhere(placement, live.candidate))
    spent = bool(n_long) and long is None
    return Seen(first, long, predicted, placement, prose, tuple(text for text in notes if text), spent)


def _unpinned(placement: Placement) -> str:
    n_bytes = placement.unpinned_bytes
    if n_bytes is None:
        return ""
    return f"{units.mib(n_bytes)} of experts could not be page-locked: the GPU copies them at the pageable rate"


def _elsewhere(placement: Placement, candidate: Candidate) -> str:
    """What the engine did with layers, where that is not what the plan says."""
    if placement.offloaded is None or not candidate.settings.devices:
        return ""
    there, most = placement.offloaded
    planned = min(candidate.settings.n_gpu_layers, most)
    return "" if there == planned else f"the engine put {there} layers on devices, the plan says {planned}"


def slot_tokens(settings: Settings) -> int:
    """Tokens that one request can hold."""
    return settings.n_ctx if settings.kv_unified else settings.n_ctx // settings.n_parallel


def room(live: Live) -> int:
    """Prompt tokens that fit a slot beside an answer of a block; below 1 if none do."""
    return slot_tokens(live.candidate.settings) - TOKENS - SPARE


def _too_long(live: Live, prompt_n: int) -> Trouble:
    from planner.verification.engine import Kind, Trouble

    slot = slot_tokens(live.candidate.settings)
    return Trouble(Kind.FAILED, f"a slot of {slot:,} tokens has no room for an answer to a prompt of {prompt_n:,}")


def _long(live: Live, pricing: Pricing, first: Answer, budget_s: float) -> tuple[int, str]:
    """Tokens of the long prompt, and what there is to say about it."""
    wanted = max(DEPTH, pricing.problem.workload.prompt_tokens)
    most = min(wanted, room(live))
    if most < LEAST_PROMPT:
        return 0, "the context has no room for a long prompt: speed at depth was not looked at"
    rate = first.prefill_tps or pricing.at(live.candidate.settings, most, TOKENS).speed.prefill_tps.low
    affordable = int(rate * budget_s * LONG_SHARE)
    if affordable >= most:
        return most, "" if most == wanted else f"looked at {most:,} tokens of prompt: the context ends there"
    if affordable < LEAST_PROMPT:
        return 0, f"no time for a long prompt within {budget_s:.0f} s: speed at depth was not looked at"
    return affordable, f"looked at {affordable:,} tokens of prompt instead of {most:,}: the budget is {budget_s:.0f} s"


def filled(prose: tuple[int, ...], n: int, start: int = 0) -> tuple[int, ...]:
    """``n`` tokens of prose, from another place for another ``start``."""
    begin = start % max(len(prose), 1)
    turned = prose[begin:] + prose[:begin]
    return (turned * (n // max(len(turned), 1) + 1))[:n]
