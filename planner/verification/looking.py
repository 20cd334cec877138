"""Looks at one plan: the first answer, which the user sees, then longer prompts, where a tight plan shows itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from planner import units
from planner.plans.plan import Verdict
from planner.verification.texts import PROSE, QUESTION
from planner.verify.blocks import TOKENS
from planner.verify.budget import LEAST_PROMPT, Pace, again_s, ask_s

if TYPE_CHECKING:
    from planner.facts.observed import Answer, Placement
    from planner.plans.plan import Candidate
    from planner.plans.settings import Settings
    from planner.search import Pricing
    from planner.verification.engine import Live, Trouble
    from planner.verification.listener import Listener
    from probes.session import Down

PAST: Final = 8192
"""Short prompts prove nothing: runs of one plan differed by a factor of several (one 16 GB card)."""
DEPTH: Final = PAST + 512
"""A plan is looked at past 8,192 tokens, or as far as its context goes."""
BUILT_IN_TOKENS: Final = 128
PATIENCE: Final = 2.0
"""A prompt may take so many times what was expected."""
GRACE_S: Final = 10.0
SPARE: Final = 16
"""Tokens of a slot that stay free."""
LEAST_SLOT: Final = 64
"""Tokens of a slot that hold our question in a chat template (about 30), and enough of an answer to time it."""
LEAST_ANSWER: Final = 8
"""Tokens of an answer that tell how fast it came."""
PIECE: Final = 1 << 17
"""Characters that are tokenized at once."""
MANY: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Seen:
    """What looks at one plan gave.

    Args:
        answer: of the user's question.
        long: of the longest prompt of ours; None if there was no room or no time for one.
        spent: the engine may still compute a prompt that nobody waits for: it must be started anew.
        prose: tokens to make prompts from.
        slot: tokens that one request can really hold.
    """

    live: Live
    answer: Answer
    prose: tuple[int, ...]
    placement: Placement
    slot: int
    long: Answer | None = None
    spent: bool = False

    @property
    def measured(self) -> Answer:
        """The answer that the prediction is held against."""
        return self.long or self.answer

    @property
    def depth(self) -> int:
        """Tokens of the longest prompt."""
        return self.measured.prompt_n

    def predicted(self, pricing: Pricing) -> Candidate:
        """The candidate, priced for what ``measured`` had to do."""
        return pricing.at(self.live.candidate.settings, self.measured.prompt_n, self.measured.predicted_n)

    def faded(self, pricing: Pricing) -> float | None:
        """Decode of the first answer over that of the longest prompt, each by its prediction; None if not both.

        Drafts are accepted more or less often by text, so with them it says nothing.
        """
        first, last = self.answer, self.measured
        if self.long is None or first.decode_tps is None or last.decode_tps is None or first.draft_n or last.draft_n:
            return None
        settings = self.live.candidate.settings
        there = pricing.at(settings, max(first.prompt_n, 1), first.predicted_n).speed.decode_tps.mid
        here = self.predicted(pricing).speed.decode_tps.mid
        return (first.decode_tps / there) / (last.decode_tps / here)


def first(live: Live, pricing: Pricing, prompt: str | None, listener: Listener) -> Seen | Trouble:
    """Ask the first question. Args: prompt: the user's; None asks one of ours."""
    from planner.facts.observed import Answer
    from probes.session import Down, Question

    asked = prompt if prompt is not None else QUESTION
    n_predict = BUILT_IN_TOKENS if prompt is None else pricing.problem.workload.answer_tokens
    slot = min(slot_tokens(live.candidate.settings), live.session.placement().n_ctx or MANY)
    prose = live.session.tokenize(PROSE)
    own_n = _counted(live, asked, slot)
    for found in (prose, own_n):
        if isinstance(found, Down):
            return live.trouble(found)
    assert isinstance(prose, tuple) and isinstance(own_n, int)
    most = slot - own_n - SPARE
    if most < LEAST_ANSWER:
        return _too_long(slot, own_n)
    answer = live.ask(Question(asked, min(n_predict, most), chat=True), own_n, listener.hear)
    listener.heard()
    if not isinstance(answer, Answer):
        return answer
    rate = "" if answer.decode_tps is None else f", then {answer.decode_tps:,.1f} tok/s"
    listener.note(f"first token after {answer.first_s:.2f} s{rate}" if answer.text else "the model answered nothing")
    live.watch.sampler.take()
    seen = Seen(live, answer, prose, live.session.placement(), slot)
    return seen if answer.predicted_n >= LEAST_ANSWER else _timed(seen, own_n, min(TOKENS, most), listener)


def _counted(live: Live, text: str, slot: int) -> int | Down:
    """Tokens of a text, or of as much of it as is too much for the slot: a list of all of them may be endless."""
    n = 0
    for begin in range(0, len(text), PIECE):
        tokens = live.session.tokenize(text[begin : begin + PIECE])
        if not isinstance(tokens, tuple):
            return tokens
        n += len(tokens)
        if n > slot:
            break
    return n


def _timed(seen: Seen, own_n: int, n_predict: int, listener: Listener) -> Seen | Trouble:
    """A model may end its answer at once: then one to our own prose, without an end, says how fast it is.

    The prompt is as long as the user's, or as long as prefill needs to tell anything where there is room.
    """
    from planner.facts.observed import Answer
    from probes.session import Question

    listener.note(f"so short an answer says nothing of its speed: asking for {n_predict} tokens more")
    prompt_n = max(own_n, min(LEAST_PROMPT, seen.slot - n_predict - SPARE))
    question = Question(filled(seen.prose, prompt_n), n_predict, exact=True)
    found = seen.live.ask(question, prompt_n, lambda piece: None)
    return replace(seen, long=found) if isinstance(found, Answer) else found


def longer(seen: Seen, prompt_n: int, pace: Pace, seconds: float, listener: Listener) -> Seen | Trouble:
    """Ask a prompt of so many tokens; where it takes too long, what was seen before with ``spent``.

    Args:
        seconds: what there is time for; the pace may rest on assumed rates, so it alone ends nothing.
    """
    from planner.facts.observed import Answer
    from probes.session import Question

    live = seen.live
    patience_s = max(PATIENCE * ask_s(pace, prompt_n), seconds) + GRACE_S
    listener.note(f"looking at a prompt of {prompt_n:,} tokens (about {ask_s(pace, prompt_n):.0f} s)")
    question = Question(filled(seen.prose, prompt_n), TOKENS, exact=True)
    found = live.ask(question, prompt_n, lambda piece: None, patience_s)
    live.watch.sampler.take()
    if isinstance(found, Answer):
        return replace(seen, long=found, placement=live.session.placement())
    if not found.limit:
        return found
    listener.note(f"given up after {patience_s:.0f} s")
    return replace(seen, spent=True)


def pace_of(seen: Seen, pricing: Pricing, prompt_n: int) -> Pace:
    """How fast the engine would compute a prompt of so many tokens: as predicted, by as much as it was off before.

    Where its prompt was too short to tell, decode stands for both.
    """
    settings = seen.live.candidate.settings
    there, here = pricing.at(settings, prompt_n, TOKENS).speed, seen.predicted(pricing).speed
    measured = seen.measured
    decode = (measured.decode_tps or here.decode_tps.low) / here.decode_tps.mid
    tells = seen.long is not None and measured.prompt_n >= LEAST_PROMPT
    prefill = (measured.prefill_tps or here.prefill_tps.low) / here.prefill_tps.mid if tells else decode
    return Pace(
        there.prefill_tps.mid * prefill,
        there.decode_tps.mid * decode,
        _load_s(seen, pricing),
        cold=bool(settings.devices),
    )


def _load_s(seen: Seen, pricing: Pricing) -> float:
    """Seconds that another start takes: RAM then has the file, unless it does not hold it."""
    first = seen.live.session.loaded_s
    pages = seen.live.candidate.verdict is Verdict.PAGES
    return first if pages else min(first, again_s(pricing.problem.model.file_bytes))


def notes(seen: Seen) -> tuple[str, ...]:
    """What there is to say about where the engine put things."""
    found = (_unpinned(seen.placement), _elsewhere(seen.placement, seen.live.candidate))
    return tuple(text for text in found if text)


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
    if there == planned:
        return ""
    return f"the engine put {units.counted(there, 'layer')} on devices, the plan says {planned}"


def slot_tokens(settings: Settings) -> int:
    """Tokens that one request can hold; llama-server may give fewer, as no slot passes the model's training context."""
    return settings.n_ctx if settings.kv_unified else settings.n_ctx // settings.n_parallel


def room(slot: int) -> int:
    """Prompt tokens that fit a slot beside an answer of a block; below 1 if none do."""
    return slot - TOKENS - SPARE


def wanted(slot: int, prompt_tokens: int) -> int:
    """Tokens of the longest prompt that is worth a look; 0 where the slot has no room for one."""
    most = min(max(DEPTH, prompt_tokens), room(slot))
    return most if most >= LEAST_PROMPT else 0


def deep(slot: int, depth: int) -> bool:
    """Whether a look went past 8,192 tokens, or as far as the context goes."""
    return depth >= goal(slot)


def goal(slot: int) -> int:
    """Tokens that a deep look goes past: 8,192, or what the context has room for."""
    return min(PAST, room(slot))


def _too_long(slot: int, prompt_n: int) -> Trouble:
    from planner.verification.engine import Kind, Trouble

    least = "at least " if prompt_n > slot else ""
    return Trouble(
        Kind.FAILED, f"a slot of {slot:,} tokens has no room for an answer to a prompt of {least}{prompt_n:,}"
    )


def filled(prose: tuple[int, ...], n: int, start: int = 0) -> tuple[int, ...]:
    """``n`` tokens of prose, from another place for another ``start``."""
    begin = start % max(len(prose), 1)
    turned = prose[begin:] + prose[:begin]
    return (turned * (n // max(len(turned), 1) + 1))[:n]
