"""Events of a streamed answer → text, token times and the engine's own timings (tools/server/README.md, b11549)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from planner.facts.observed import Answer

if TYPE_CHECKING:
    from probes.session import Question

CHAT = "/v1/chat/completions"
COMPLETION = "/completion"
MAX_PIECE: Final = 64 << 10
"""Characters of one piece of text; a token has a few."""
MAX_TEXT: Final = 4 << 20
SLACK_TOKENS: Final = 16
"""Tokens that may come beyond those asked for before an answer counts as none."""
PIECES: Final = 2
"""Pieces per token at most: a parser of thoughts may split one."""
LEAST_MS: Final = 1e-3
"""No part of an answer takes less than a microsecond; none at all is 0."""
TEMPLATE_TOKENS: Final = 1 << 14
"""Tokens that a chat template may put around a text; a token of the text has a byte at least."""
DOUBT: Final = 2.0
"""Timings under one part in so many of what passed on our own clock are not believed."""
LATE_S: Final = 0.5
"""What may pass beside the prompt before its first token: the question's way, a prompt that goes to the cache."""


@dataclass(slots=True)
class Reading:
    """An answer while it comes in. ``feed`` takes events in order; ``answer`` is there once timings came."""

    start_s: float
    question: Question
    text: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    processed: int = 0
    """Tokens of the prompt that are done, where the server tells."""
    timings: dict[str, Any] | None = None
    timed_s: float | None = None
    """When the last timings came."""
    n_chars: int = 0
    """Of the whole text."""

    def feed(self, event: dict[str, Any], at_s: float) -> str:
        """The piece of text in an event; empty if there is none."""
        progress = event.get("prompt_progress")
        if isinstance(progress, dict):
            self.processed = _whole(progress.get("processed")) or self.processed
        timings = event.get("timings")
        if isinstance(timings, dict):
            self.timings, self.timed_s = timings, at_s
        piece, ids = _piece(event)
        if piece or ids:
            self.times_s.append(at_s)
        self.tokens += ids
        self.n_chars += len(piece)
        if piece:
            self.text.append(piece)
        return piece

    def excess(self, event: dict[str, Any]) -> str:
        """How an answer with one more event is no answer to the question; empty if it is."""
        piece, ids = _piece(event)
        n_predict = self.question.n_predict
        if len(piece) > MAX_PIECE or self.n_chars + len(piece) > MAX_TEXT:
            return f"{self.n_chars + len(piece):,} characters came for {n_predict:,} tokens"
        most = n_predict + SLACK_TOKENS
        if len(self.tokens) + len(ids) > most or len(self.times_s) > PIECES * most:
            return f"more came than the {n_predict:,} tokens that were asked for"
        timings = event.get("timings")
        return self._miscounted(timings) if isinstance(timings, dict) else ""

    def _miscounted(self, timings: dict[str, Any]) -> str:
        """That timings count more tokens than there can be."""
        prompt, n_predict = self.question.prompt, self.question.n_predict
        sent = len(prompt) if isinstance(prompt, tuple) else len(prompt.encode("utf-8", "replace")) + TEMPLATE_TOKENS
        prompt_n, predicted_n = (_whole(timings.get(name)) or 0 for name in ("prompt_n", "predicted_n"))
        if prompt_n > sent + SLACK_TOKENS:
            return f"it counts {prompt_n:,} tokens of a prompt that has {sent:,} at most"
        if predicted_n > n_predict + SLACK_TOKENS:
            return f"it counts {predicted_n:,} tokens of answer, {n_predict:,} were asked for"
        return ""

    @property
    def first_s(self) -> float | None:
        """From the question to the first token; None before it."""
        return self.times_s[0] - self.start_s if self.times_s else None

    @property
    def gaps_s(self) -> tuple[float, ...]:
        return tuple(b - a for a, b in zip(self.times_s, self.times_s[1:], strict=False))

    def answer(self) -> Answer | None:
        """The whole answer, which may have no text; None if it broke off before its timings."""
        found = self.timings
        if found is None or self.timed_s is None:
            return None
        numbers = [_number(found.get(name)) for name in ("prompt_ms", "predicted_ms")]
        counts = [_whole(found.get(name)) for name in ("prompt_n", "predicted_n")]
        if None in numbers or None in counts:
            return None
        prompt_ms, predicted_ms = (n or 0.0 for n in numbers)
        prompt_n, predicted_n = (n or 0 for n in counts)
        if self.first_s is None and not predicted_n:
            return None  # these timings came with progress through the prompt
        whole_s = self.timed_s - self.start_s
        first_s = whole_s if self.first_s is None else self.first_s
        prompt_s, predicted_s = self._believed(prompt_ms / 1e3, predicted_ms / 1e3, first_s, whole_s)
        return Answer(
            text="".join(self.text),
            tokens=tuple(self.tokens),
            prompt_n=prompt_n,
            prompt_s=prompt_s,
            predicted_n=predicted_n,
            predicted_s=predicted_s,
            first_s=first_s,
            gaps_s=self.gaps_s,
            draft_n=_whole(found.get("draft_n")),
            draft_accepted=_whole(found.get("draft_n_accepted")),
        )

    def _believed(self, prompt_s: float, predicted_s: float, first_s: float, whole_s: float) -> tuple[float, float]:
        """The engine's seconds of prompt and answer, or ours: nobody answers faster than the answer comes.

        A time of 0 is none that was told. An answer of a prompt that is not computed anew may come from a cache, so
        there the whole alone tells.
        """
        seen_s = sum(self.gaps_s)
        if predicted_s < seen_s / DOUBT:
            predicted_s = seen_s
        early = self.question.exact and prompt_s < (first_s - LATE_S) / DOUBT
        if prompt_s and (early or prompt_s + predicted_s < (whole_s - LATE_S) / DOUBT):
            prompt_s = first_s
        return prompt_s, predicted_s


def _piece(event: dict[str, Any]) -> tuple[str, list[int]]:
    """Text and token ids of one event of either endpoint; a reasoning model's thoughts are text, too.

    Events of progress through the prompt bring a token 0 that nobody wrote (llama-server b11549).
    """
    if isinstance(event.get("prompt_progress"), dict):
        return "", []
    choices = event.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        delta = choices[0].get("delta")
        delta = delta if isinstance(delta, dict) else {}
        parts = (delta.get("reasoning_content"), delta.get("content"))
        return "".join(part for part in parts if isinstance(part, str)), []
    content, ids = event.get("content"), event.get("tokens")
    known = [i for i in ids if type(i) is int] if isinstance(ids, list) else []
    return content if isinstance(content, str) else "", known


def _number(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    sound = number and (value == 0 or LEAST_MS <= value < 1e12)
    return float(value) if sound else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 40 else None
