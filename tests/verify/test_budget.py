from __future__ import annotations

from typing import Any

import pytest

from planner.facts.workload import Goal
from planner.plans.settings import Settings
from planner.plans.verified import Attempt, Rates
from planner.verify.blocks import FEWEST, TOKENS
from planner.verify.budget import (
    LEAST_PROMPT,
    TOGETHER,
    Bounds,
    Pace,
    ask_s,
    choose,
    depth,
    forecast,
    prompts,
    too_dear,
    trial_s,
    warm_up,
)

SLOW = Pace(prefill_tps=136.0, decode_tps=27.0, load_s=1.0)
"""Two cores and an 846 MB model."""
FAST = Pace(prefill_tps=2800.0, decode_tps=60.0, load_s=6.0, cold=True)
"""A card with a part of the experts in RAM."""
USUAL = Bounds(wanted=4096, room=8112)


def attempt(part: Goal = Goal.TURN, worth: float = 0.05, **changes: Any) -> Attempt:
    settings = Settings(n_ctx=8192, n_gpu_layers=0, **changes)
    return Attempt(tuple(changes.items()), settings, None, worth, "", part, max(settings.n_ubatch, 512))


THREADS, UBATCH, LOAD = (
    attempt(Goal.DECODE, threads=1),
    attempt(Goal.PREFILL, n_ubatch=1024),
    attempt(Goal.TURN, no_host=True),
)


def test_a_change_of_decode_pays_no_full_prompt() -> None:
    for pace in (SLOW, FAST):
        longest = prompts(pace, THREADS, USUAL)[0]
        assert longest == LEAST_PROMPT or longest / pace.prefill_tps <= TOKENS / pace.decode_tps / 2.9
    assert prompts(SLOW, THREADS, USUAL) == (LEAST_PROMPT,)
    assert prompts(FAST, THREADS, USUAL)[0] > 512  # decode at some depth where a prompt costs little


def test_a_change_of_prefill_gets_whole_ubatches_up_to_the_workload() -> None:
    assert prompts(SLOW, UBATCH, USUAL) == (1024,)
    assert prompts(SLOW, LOAD, USUAL) == (256,)
    there = attempt(Goal.PREFILL, n_ubatch=1024, devices=("CUDA0",))
    assert prompts(FAST, there, USUAL) == (4096, 2048, 1024)
    assert prompts(SLOW, UBATCH, Bounds(600, 8112))[0] == 600
    assert prompts(SLOW, UBATCH, Bounds(4096, 40)) == (40,)
    assert prompts(SLOW, UBATCH, Bounds(4096, -79)) == ()


def test_a_trial_counts_its_blocks_and_its_starts() -> None:
    blocks, starts = 2 * FEWEST * ask_s(SLOW, 128), FEWEST + 1
    start = SLOW.load_s + ask_s(SLOW, *warm_up(SLOW, THREADS, 128))
    assert trial_s(SLOW, THREADS, 128) == pytest.approx(blocks + starts * start)


def test_a_start_is_warmed_up_by_what_counts() -> None:
    assert warm_up(SLOW, UBATCH, 1024) == (32, 8)
    assert warm_up(FAST, UBATCH, 1024) == (1024, 8)
    assert warm_up(FAST, attempt(moe_cache_mib=4096), 1024) == (1024, TOKENS)


def test_a_trial_leaves_room_for_two_others() -> None:
    """One that needs nearly all of the time waits for the cheaper ones, whatever it is worth."""
    cheap = [attempt(Goal.DECODE, 0.01, threads=n) for n in (1, 2, 3)]
    dear = attempt(Goal.PREFILL, 0.5, n_ubatch=4096)
    least = trial_s(SLOW, cheap[0], LEAST_PROMPT)
    left = trial_s(SLOW, dear, 4096) + least
    chosen = choose(SLOW, (dear, *cheap), USUAL, left, 6)
    assert chosen is not None and chosen.attempt is cheap[0]
    assert chosen.allowed_s == pytest.approx(left / TOGETHER)  # its share, not all that the others leave
    alone = choose(SLOW, (dear, *cheap), USUAL, left, 1)
    assert alone is not None and alone.attempt is dear


def test_what_does_not_fit_is_not_begun() -> None:
    assert choose(SLOW, (THREADS, UBATCH), USUAL, 1.0, 6) is None
    assert choose(SLOW, (), USUAL, 1e6, 6) is None


def test_the_usual_budget_holds_three_trials_and_a_look_on_two_slow_cores() -> None:
    """846 MB on two cores: 8,112 tokens of prompt, and ubatch up and down and the other load mode."""
    ubatch = [attempt(Goal.PREFILL, n_ubatch=n) for n in (1024, 256)]
    left = 480.0 - ask_s(SLOW, 8112)
    found = forecast(SLOW, (*ubatch, LOAD), USUAL, left, 6)
    assert [item.fits for item in found] == [True] * 3
    assert sum(item.seconds for item in found) <= left


def test_a_fast_machine_gets_prompts_of_several_ubatches() -> None:
    ubatch = attempt(Goal.PREFILL, n_ubatch=1024, devices=("CUDA0",))
    found = forecast(FAST, (ubatch, LOAD, THREADS), USUAL, 280.0, 6)
    assert all(item.fits for item in found)
    assert next(item for item in found if item.attempt is ubatch).prompt_n > ubatch.n_ubatch


def test_a_forecast_ends_with_what_would_not_run() -> None:
    many = tuple(attempt(Goal.DECODE, threads=n) for n in range(1, 9))
    found = forecast(SLOW, many, USUAL, 3 * trial_s(SLOW, many[0], LEAST_PROMPT) + 1.0, 6)
    assert [item.fits for item in found] == [True] * 3 + [False] * 5
    assert {item.attempt.settings for item in found} == {item.settings for item in many}
    assert [item.fits for item in forecast(SLOW, many, USUAL, 1e6, 2)] == [True] * 2 + [False] * 6


@pytest.mark.parametrize(("seconds", "tokens"), [(0.0, 0), (2.0, 0), (1e6, 8112), (32.4, 4080)])
def test_as_deep_as_time_goes(seconds: float, tokens: int) -> None:
    found = depth(SLOW, 8112, seconds)
    assert found == pytest.approx(tokens, rel=0.01)
    assert depth(SLOW, 0, 1e6) == 0 and depth(SLOW, 100, 1e6) == 100


def test_a_kept_change_makes_what_follows_cheaper() -> None:
    faster = SLOW.times(Rates(20.0, 100.0), Rates(30.0, 100.0))
    assert (faster.decode_tps, faster.prefill_tps) == (pytest.approx(40.5), 136.0)


def test_what_is_too_dear_says_what_it_needs_and_what_is_left() -> None:
    """``no time left`` was said with more than half of the budget left."""
    least = {item: trial_s(SLOW, item, prompts(SLOW, item, USUAL)[-1]) for item in (LOAD, THREADS)}
    left_s = min(least.values()) - 0.1
    assert choose(SLOW, (LOAD, THREADS), USUAL, left_s, 6) is None
    text = too_dear(SLOW, (LOAD, THREADS), USUAL, left_s, 64.0)
    assert f"threads 1 needs {int(least[THREADS]) + 1} s; no_host True needs {int(least[LOAD]) + 1} s;" in text
    assert text.endswith(f" {int(left_s)} s are left beside 64 s for a long prompt, --budget SECONDS gives more")
    assert "; 0 s are left, --budget" in too_dear(SLOW, (LOAD,), USUAL, -3.0, 0.0)
