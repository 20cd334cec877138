"""Verifications built by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.facts.observed import Answer, Buffer, Placement, Verified
from planner.plans.speed import Band
from planner.plans.verified import Attempt, Compared, Finding, Rates, StepBack, Trial, Verification
from planner.units import MIB
from tests.emit.plans import make_plan

LEARNED = Verified(
    when="2026-01-02",
    devices=("CUDA0",),
    decode_ratio=0.62,
    prefill_ratio=1.1,
    runs=3,
    extra=(("CUDA0", 100 * MIB),),
    kept=(("n_ubatch", "1024"),),
    exact=True,
)


def make_trial(**changes: Any) -> Trial:
    plan = make_plan()
    settings = replace(plan.chosen.settings, n_ubatch=1024)
    attempt = Attempt((("n_ubatch", 1024),), settings, 0.05, 0.05, "predicted")
    base = Trial(
        attempt,
        Rates(40.0, 1000.0),
        Rates(40.1, 1400.0),
        4,
        0.2,
        0.05,
        (("CUDA0", 5000 * MIB),),
        kept=True,
        reason="20.0% faster, beyond the noise of 5.0%",
    )
    return replace(base, **changes)


def make_verification(**changes: Any) -> Verification:
    plan = make_plan()
    base = Verification(
        plan=plan,
        finding=Finding.VERIFIED,
        reason="it answers as fast as predicted, or faster",
        when="2026-01-02",
        engine="llama.cpp b11549",
        compared=(
            Compared("decode", "tok/s", Band(32.0, 40.0, 48.0), 41.0, True),
            Compared("CUDA0 model", "bytes", Band(0.0, 1536.0 * MIB, 1567.0 * MIB), 1600.0 * MIB, False),
        ),
        trials=(make_trial(), make_trial(kept=False, gain=None, error=None, after=None, reason="no room", pairs=0)),
        steps=(StepBack((("moe_cache_mib", 0),), "GPU memory ran out"),),
        answer=Answer("Hello.", (), 12, 0.1, 30, 0.75, 0.15),
        placement=Placement((Buffer("CUDA0", "model", 1600 * MIB),), "b11549", 4096, 1, (25, 25)),
        loaded_s=1.5,
        peak_rss_bytes=300 * MIB,
        major_faults=3,
        notes=("looked at 4,000 tokens of prompt: the context ends there",),
        learned=LEARNED,
    )
    return replace(base, **changes)
