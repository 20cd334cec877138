"""What a verification is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.verification.startable import Own


@dataclass(frozen=True, slots=True)
class Options:
    """Args:
    prompt: the user's first question; None asks one of ours.
    budget_s: what longer prompts and trials may take together, from the end of the first answer on.
    own: the user's own arguments for llama-server.
    serve: whether to go on with the kept settings.
    """

    prompt: str | None = None
    max_trials: int = 6
    budget_s: float = 480.0
    own: Own = field(default_factory=Own)
    serve: bool = False
