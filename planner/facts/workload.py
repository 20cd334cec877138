"""What the user wants to run: sizes of a turn and what may not be changed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Goal(StrEnum):
    """What "fastest" means: a whole turn, or one half of it."""

    TURN = "turn"
    DECODE = "decode"
    PREFILL = "prefill"


class Target(StrEnum):
    """The engine that the flags are for."""

    LLAMA_CPP = "llama.cpp"
    IK = "ik_llama.cpp"
    BIGMOE = "bigmoe"
    WORKING_SET = "working-set"

    @property
    def takes_tensors(self) -> bool:
        """Whether single tensors can be placed, and not only whole blocks."""
        return self is not Target.BIGMOE


@dataclass(frozen=True, slots=True)
class Workload:
    """One turn, and the user's limits.

    Args:
        n_ctx: asked context in tokens; None lets the planner choose.
        kv: ``auto``, or a K:V pair of ggml types the user insists on.
        headroom_bytes: VRAM to keep free per device; None takes the rule's default.
        vram_bytes: budget overrides by device id (``""`` means every device).
        ram_bytes: RAM budget override.
        pins: ``(setting, value)`` the planner may not change; settings are fields of ``Settings``.
        target: the engine to write flags for.
        target_build: plan for this llama.cpp build instead of the detected one.
        rpc: servers of remote devices, ``host:port``.
    """

    n_ctx: int | None = None
    n_parallel: int = 1
    prompt_tokens: int = 4096
    answer_tokens: int = 512
    goal: Goal = Goal.TURN
    kv: tuple[str, str] | None = None
    headroom_bytes: int | None = None
    vram_bytes: tuple[tuple[str, int], ...] = ()
    ram_bytes: int | None = None
    pins: tuple[tuple[str, str], ...] = ()
    target: Target = Target.LLAMA_CPP
    target_build: int | None = None
    rpc: tuple[str, ...] = ()
