"""Multi-token prediction: what a pass over several drafted tokens reads, and how many of them are kept.

llama-server drafts ``--spec-draft-n-max`` tokens with the model's own head, one after the other, and checks them in
one pass (common/speculative.cpp, b11434; ggml-org/llama.cpp#22673).
"""

from __future__ import annotations

from typing import Final

from planner.cost.shape import DRAFT_N_MAX, MTP
from planner.facts.model import Model, Role
from planner.plans.settings import Settings

ACCEPTED_TOKENS: Final = 2.0
"""Tokens that a pass yields with a draft of three. Published: Qwen3.6-35B-A3B 120.0 to 148.3 tok/s on an RTX 3090
and 49.5 to 69.4 on a Strix Halo, Qwen3.6-27B 7.4 to 18.1 there; by what the passes read that is 2.0 to 2.7."""


def pass_tokens(settings: Settings) -> int:
    """Tokens of one decode pass."""
    return 1 + DRAFT_N_MAX if settings.spec_type == MTP else 1


def accepted_tokens(settings: Settings) -> float:
    """Tokens that one decode pass yields."""
    return ACCEPTED_TOKENS if settings.spec_type == MTP else 1.0


def block_bytes(model: Model) -> float:
    """Bytes of the prediction blocks that one drafted token reads."""
    drafts = {layer.index for layer in model.layers if layer.nextn}
    used = model.n_expert_used / max(model.n_expert, 1)
    found = [t for t in model.tensors if t.layer in drafts]
    return sum(t.n_bytes * (used if t.role is Role.EXPERT else 1.0) for t in found)
