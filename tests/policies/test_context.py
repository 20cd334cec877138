from dataclasses import replace

from planner.plans.decision import Fate
from tests.policies.problems import big_model, card, decision, machine, solved


def test_an_asked_context_is_kept_and_padded() -> None:
    assert solved(machine(card(20)), n_ctx=20000).chosen.settings.n_ctx == 20224


def test_climbs_only_while_the_turn_hardly_slows_down() -> None:
    roomy, tight = solved(machine(card(23))), solved(machine(card(6)))
    assert roomy.chosen.settings.n_ctx == 131072
    assert roomy.chosen.settings.n_cpu_moe == 0
    assert tight.chosen.settings.n_ctx < 131072
    shortest = solved(machine(card(6)), n_ctx=8192)
    # 5 %, and what single tensors of one block bring to one of them afterwards
    assert tight.chosen.speed.turn_s.mid <= 1.06 * shortest.chosen.speed.turn_s.mid


def test_never_exceeds_the_training_context_unasked() -> None:
    short = replace(big_model(), n_ctx_train=8192)
    assert solved(machine(card(23)), short).chosen.settings.n_ctx == 8192


def test_holds_prompt_and_answer_of_every_slot() -> None:
    plan = solved(machine(card(20)), n_parallel=4, prompt_tokens=30000, answer_tokens=1000)
    assert plan.chosen.settings.n_ctx >= 4 * 31000
    assert plan.chosen.settings.n_parallel == 4


def test_warns_beyond_training_and_short_of_the_turn() -> None:
    codes = {c.code for c in solved(machine(card(20)), n_ctx=262144).cautions}
    assert "context-beyond-training" in codes
    codes = {c.code for c in solved(machine(card(20)), n_ctx=2048).cautions}
    assert "context-shorter-than-turn" in codes


def test_the_next_step_is_priced() -> None:
    loser = decision(solved(machine(card(6)), n_ctx=16384), "n_ctx").alternatives[0]
    assert loser.value == 32768
    assert loser.outcome in (Fate.DOES_NOT_FIT, Fate.SLOWER)


def test_without_a_gpu_the_cache_leaves_ram_to_others() -> None:
    assert solved(machine()).chosen.settings.n_ctx == 32768
