from dataclasses import replace

from emit import argv
from planner.facts.machine import Overflow, Ram
from planner.facts.model import AttentionKind
from planner.facts.reading import Reading, Source
from planner.units import GIB
from policies import checkpoints
from tests.policies.problems import big_model, card, decision, explained, machine, problem, solved


def recurrent(state: int):
    model = big_model()
    layers = tuple(
        replace(x, kind=AttentionKind.RECURRENT, n_embd_k=0, n_embd_v=0, state_s=state) if x.index % 4 else x
        for x in model.layers
    )
    return replace(model, layers=layers)


def test_the_default_stays_where_ram_holds_the_states() -> None:
    plan = solved(machine(card(6)), recurrent(262_144))
    assert plan.chosen.settings.ctx_checkpoints == 32
    assert decision(plan, "ctx_checkpoints").alternatives == ()


def test_steps_down_before_the_weights_leave_pinned_memory() -> None:
    scans_at_once = card(6, f16_flops=Reading(1e17, Source.MEASURED))
    tight = machine(scans_at_once, ram=Ram(16 * GIB, 13 * GIB, overflow=Overflow.SWAP))
    plan = solved(tight, recurrent(8_000_000))
    assert plan.verdict == "fits"
    assert plan.chosen.settings.ctx_checkpoints < 32
    assert plan.chosen.settings.load_mode == "none"
    assert decision(plan, "ctx_checkpoints").alternatives[0].value == 32


def test_abstains_when_everything_can_be_rewound() -> None:
    assert explained(checkpoints.RULE, problem(machine(card(6)))) == ()


def test_no_flag_where_everything_can_be_rewound_however_tight_ram_is() -> None:
    tight = machine(card(6), ram=Ram(16 * GIB, 9 * GIB, overflow=Overflow.SWAP))
    plain, states = solved(tight), solved(tight, recurrent(8_000_000))
    assert plain.chosen.settings.cache_ram_mib < 8192, "else RAM is not tight and it proves nothing"
    assert plain.chosen.settings.ctx_checkpoints == checkpoints.DEFAULT
    assert "ctx_checkpoints" not in {item.setting for item in argv.flags(plain)}
    assert "ctx_checkpoints" in {item.setting for item in argv.flags(states)}
    assert states.chosen.settings.ctx_checkpoints < checkpoints.DEFAULT
