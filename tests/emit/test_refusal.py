"""A refusal's nearest plan: in flags, with what it loses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from emit import html_page, refusal
from planner.plans.plan import Plan, Verdict
from tests.emit.plans import refused_plan


def with_nearest(verdict: Verdict = Verdict.FITS, **settings: Any) -> Plan:
    plan = refused_plan()
    assert plan.refusal is not None and plan.refusal.nearest is not None
    near = plan.refusal.nearest
    near = replace(near, verdict=verdict, settings=replace(near.settings, **settings))
    return replace(plan, refusal=replace(plan.refusal, nearest=near))


def title(plan: Plan) -> str:
    assert plan.refusal is not None
    return str(refusal.nearest(plan, plan.refusal)[0])


def test_it_speaks_in_flags() -> None:
    said = title(with_nearest(n_cpu_moe=20, kv_unified=True, kv_offload=False))
    assert "-c 2048 instead of 4096" in said and "--n-cpu-moe 20 instead of 2" in said
    assert ", -kvu" in said and ", -nkvo" in said and "n_cpu_moe" not in said
    assert ", an -ot, " in title(with_nearest(override_tensor=(("x", "CPU"),), n_cpu_moe=1))
    back = with_nearest()
    chosen = replace(back.chosen, settings=replace(back.chosen.settings, kv_offload=False, kv_unified=True))
    assert ", no -kvu, no -nkvo" in title(replace(back, chosen=chosen))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"type_k": "q8_0"}, "lossy"),
        ({"n_ctx": 1 << 20}, "trained on"),
        ({"verdict": Verdict.PAGES}, "read from disk"),
        ({"type_v": "bf16"}, ""),
    ],
)
def test_it_says_what_to_mind(changes: dict[str, Any], says: str) -> None:
    plan = with_nearest(**changes)
    assert plan.refusal is not None and plan.refusal.nearest is not None
    lines = refusal.minded(plan, plan.refusal.nearest)
    assert [says in line for line in lines] == ([True] if says else [])
    assert all(f"<li>{line}" in html_page.html_page(plan) for line in lines)
