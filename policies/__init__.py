"""One decision per file. Order and membership are this tuple."""

from __future__ import annotations

from typing import Final

from planner.plans.rule import Rule
from policies import (
    attention,
    checkpoints,
    context,
    dense_part,
    devices,
    experts,
    headroom,
    kv_type,
    load_mode,
    op_offload,
    pool,
    prediction,
    prompt_cache,
    slots,
    split,
    threads,
    ubatch,
)

RULES: Final[tuple[Rule, ...]] = (
    devices.RULE,  # first: everything else is per device
    headroom.RULE,  # the budget that all later rules must keep
    split.RULE,  # needs the devices
    slots.RULE,  # what the context is divided by
    context.RULE,  # needs devices and headroom; fixes what KV and compute scale with
    kv_type.RULE,  # needs the context: f16 gives way only when that context fits nowhere
    attention.RULE,  # needs the KV type: a quantised V demands flash attention
    dense_part.RULE,  # opens the placement ladder: whole layers …
    experts.RULE,  # … and experts, which leave the GPU first
    pool.RULE,  # needs both: it takes what VRAM a placement leaves, and serves the experts that are in RAM
    ubatch.RULE,  # competes with experts for the same VRAM: opened here, decided by the search
    load_mode.RULE,  # sets the margin of RAM; decides what the copy of host experts costs
    op_offload.RULE,  # needs the whole ladder: who multiplies what stayed in RAM
    prediction.RULE,  # a second context: competes for the same VRAM
    checkpoints.RULE,  # takes what RAM the others leave …
    prompt_cache.RULE,  # … and this what that leaves
    threads.RULE,  # independent of memory
)
