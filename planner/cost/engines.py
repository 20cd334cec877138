"""What an engine does in its own way, as far as it changes time."""

from __future__ import annotations

from typing import Final, NamedTuple

from planner.facts.machine import Engine

OFFLOAD_TOKENS: Final = 32
"""Smallest batch whose host multiplies run on the GPU (``GGML_OP_OFFLOAD_MIN_BATCH``, b11312)."""


class EngineTraits(NamedTuple):
    """How an engine treats a prompt whose experts are in host memory.

    Args:
        per_expert: the smallest batch that moves to the GPU counts tokens per expert, not tokens.
        core_gain: what a core multiplies in a batch, as a multiple of llama.cpp's.
    """

    per_expert: bool = False
    core_gain: float = 1.0

    def offload_tokens(self, used: float) -> float:
        """Smallest batch that is computed on the GPU in a block of whose experts a token uses the share ``used``."""
        return OFFLOAD_TOKENS / used if self.per_expert and used else OFFLOAD_TOKENS


LLAMA: Final = EngineTraits()

IK: Final = EngineTraits(per_expert=True, core_gain=2.5)
"""ik_llama.cpp: 32 tokens per expert (ikawrakow/ik_llama.cpp#520), and kernels that multiply 2.8 times as fast on the
CPU (qwen3next 80B IQ4_XS, 64 cores with AVX2, 512 tokens: 275 against 97 tok/s, #1278) and 2.1 times (DeepSeek-V3
IQ4_K_R4, 32 cores with AVX-512, #258)."""


def engine_traits(engine: Engine | None) -> EngineTraits:
    """Those of the engine at hand; llama.cpp's where it is not known."""
    return IK if engine is not None and engine.kind == "ik_llama.cpp" else LLAMA
