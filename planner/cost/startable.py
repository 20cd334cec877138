"""Settings with which llama.cpp refuses to create a context, whatever the memory."""

from __future__ import annotations

from planner.cost.kv_types import BLOCK
from planner.facts.model import AttentionKind, Model
from planner.plans.settings import FlashAttn, Settings

EQUAL_KV = frozenset({AttentionKind.MLA, AttentionKind.COMPRESSED})
FLASH_ATTN_FORCED_OFF = frozenset({"grok"})


def objections(model: Model, settings: Settings) -> tuple[str, ...]:
    """Why llama.cpp would not start, one clause each; empty when it would.

    Mirrors ``llama_init_from_model`` (src/llama-context.cpp, b11434).
    """
    found = []
    k, v = settings.type_k, settings.type_v
    off = settings.flash_attn is FlashAttn.OFF or model.arch in FLASH_ATTN_FORCED_OFF
    caches = [layer for layer in model.layers if layer.n_embd_k and not layer.nextn]
    if k != v and any(layer.kind in EQUAL_KV for layer in caches):
        found.append(f"this model's attention needs equal K and V types, not {k} and {v}")
    if off and BLOCK[v][0] > 1:
        found.append(f"a {v} V cache needs flash attention, which is off")
    if not off:
        for name, kind, heads in (("K", k, {x.head_k for x in caches}), ("V", v, {x.head_v for x in caches})):
            odd = sorted(head for head in heads if head % BLOCK[kind][0])
            if odd:
                found.append(f"{kind} blocks of {BLOCK[kind][0]} do not divide {name} heads of {odd[0]}")
    return tuple(found)
