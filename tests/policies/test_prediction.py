from dataclasses import replace

import pytest

from planner.facts.machine import Engine, Machine
from planner.facts.model import Model
from planner.facts.reading import Reading, Source
from planner.plans.decision import Alternative, Fate
from policies import prediction
from tests.builders import block_tensors, make_layer
from tests.policies.problems import big_model, card, decision, explained, machine, problem, solved

ENGINE = Engine(kind="llama.cpp", build=11549, backends=("cuda",), flags=("--spec-type",))
FAST = Reading(900e9, Source.MEASURED)


def with_head() -> Model:
    """The 24-block model with one small prediction block."""
    base = big_model()
    layer = make_layer(24, nextn=True)
    return replace(
        base,
        n_layer=25,
        n_layer_nextn=1,
        layers=(*base.layers, layer),
        tensors=(*base.tensors, *block_tensors(24, n_expert=64)),
    )


def drafting(free_gib: float, engine: Engine | None = ENGINE) -> Machine:
    return replace(machine(card(free_gib, memory_bps=FAST)), engine=engine)


def test_taken_where_the_experts_are_on_the_gpu() -> None:
    plan = solved(drafting(22), with_head())
    assert plan.chosen.settings.n_cpu_moe == 0
    assert plan.chosen.settings.spec_type == "draft-mtp"
    assert any(t.name.startswith("draft ") for t in plan.chosen.memory.devices[0].context)
    lost = decision(plan, "spec_type").alternatives[0]
    assert lost.value == "none" and lost.outcome is Fate.SLOWER


def test_left_alone_where_experts_are_read_from_ram() -> None:
    plan = solved(drafting(3), with_head())
    assert plan.chosen.settings.n_cpu_moe > 12
    assert plan.chosen.settings.spec_type is None
    lost = decision(plan, "spec_type").alternatives[0]
    assert lost.value == "draft-mtp" and lost.outcome in (Fate.SLOWER, Fate.DOES_NOT_FIT)


@pytest.mark.parametrize("changes", [{"build": 11000}, {"flags": ("--temp",)}, {"build": None}])
def test_not_for_a_build_that_cannot(changes: dict[str, object]) -> None:
    plan = solved(drafting(22, replace(ENGINE, **changes)), with_head())
    assert plan.chosen.settings.spec_type is None
    assert decision(plan, "spec_type").alternatives[0].outcome is Fate.UNSUPPORTED


def test_abstains_without_a_head() -> None:
    assert explained(prediction.RULE, problem(drafting(22))) == ()


def test_a_target_build_stands_for_an_engine() -> None:
    plan = solved(drafting(22, None), with_head(), target_build=11549)
    assert plan.chosen.settings.spec_type == "draft-mtp"
    assert solved(drafting(22), with_head(), target_build=11000).chosen.settings.spec_type is None


@pytest.mark.parametrize(
    ("outcome", "by", "words"),
    [
        (Fate.DOES_NOT_FIT, 5e8, "do not fit"),
        (Fate.UNSUPPORTED, None, "would not start"),
        (Fate.SLOWER, 1.3, "costs more than"),
        (Fate.SLOWER, 1.0, "nothing is gained"),
    ],
)
def test_what_drafting_comes_to_is_the_reason_against_it(
    monkeypatch: pytest.MonkeyPatch, outcome: Fate, by: float | None, words: str
) -> None:
    monkeypatch.setattr(prediction, "versus", lambda value, *_: Alternative(value, outcome, by, "by hand"))
    (said,) = explained(prediction.RULE, problem(drafting(3), with_head()))
    assert said.value == "none" and words in said.headline


def test_without_a_gpu_it_says_that_it_is_not_tried() -> None:
    (said,) = explained(prediction.RULE, problem(replace(machine(), engine=ENGINE), with_head()))
    assert said.headline == "off: it is tried only where a GPU takes part"
