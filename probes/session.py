"""A running engine that answers: what verification may ask of llama-server or of the embedded engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from planner.facts.observed import Answer, Placement
from probes.engine_cause import Cause
from probes.server_events import Reading

STEP_S = 0.25
"""How often a waiting asker looks whether to stop."""

Tick = Callable[[Reading | None], str]
"""Called every ``STEP_S`` with what came so far; a text it returns ends the wait, and says why."""


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask.

    Args:
        prompt: text, or token ids.
        n_predict: most tokens of the answer.
        chat: put the text through the model's chat template.
        exact: answer with the likeliest tokens, exactly ``n_predict`` of them, and keep nothing of earlier prompts.
    """

    prompt: str | tuple[int, ...]
    n_predict: int
    chat: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Down:
    """The engine is gone, or never came up."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class Stopped:
    """We stopped waiting; the engine still runs. ``reading`` is what had come."""

    reason: str
    reading: Reading | None = None


class Session(Protocol):
    """Use it as a context: at its end the engine has ended."""

    @property
    def pid(self) -> int: ...

    @property
    def url(self) -> str | None:
        """Where a user can talk to it; None if nowhere."""

    @property
    def loaded_s(self) -> float:
        """What loading took."""

    def placement(self) -> Placement: ...

    def tokenize(self, text: str) -> tuple[int, ...] | Down: ...

    def ask(self, question: Question, hear: Callable[[str], None], tick: Tick) -> Answer | Down | Stopped:
        """The answer; every piece of its text goes to ``hear`` as it comes."""

    def alive(self) -> Down | None:
        """Why it has ended; None while it runs."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
