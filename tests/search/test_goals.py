"""A goal is served first, and the turn decides between plans that serve it alike."""

from planner.facts.workload import Goal
from tests.policies.problems import card, machine, solved


def test_decode_alone_does_not_give_prefill_away() -> None:
    turn, decode = (solved(machine(card(6)), goal=goal).chosen for goal in (Goal.TURN, Goal.DECODE))
    assert decode.speed.decode_tps.mid >= turn.speed.decode_tps.mid * 0.995
    if decode.speed.decode_tps.mid < turn.speed.decode_tps.mid * 1.01:
        assert decode.speed.prefill_tps.mid >= turn.speed.prefill_tps.mid * 0.9


def test_prefill_alone_is_at_least_as_fast() -> None:
    turn, prefill = (solved(machine(card(6)), goal=goal).chosen for goal in (Goal.TURN, Goal.PREFILL))
    assert prefill.speed.prefill_tps.mid >= turn.speed.prefill_tps.mid
