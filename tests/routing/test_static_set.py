"""The fixed set of a pool, and the working-set fork's files of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from emit import working_set
from planner.errors import OptionError, RoutingFileError
from planner.facts.model import Model
from planner.facts.routing import Phase, Routing
from planner.routing.analysis import analyse
from planner.routing.shape import shape_of
from planner.routing.static_set import fixed_set
from tests.builders import make_model

SLOT = 3 * 256 * 128 * 2
COUNTS = (
    (90, 5, 5, 0, 0, 0, 0, 0),
    (20, 20, 20, 20, 20, 0, 0, 0),
    (60, 40, 0, 0, 0, 0, 0, 0),
    (1, 2, 3, 4, 5, 6, 7, 72),
)


def routed(counts: tuple[tuple[int, ...], ...] = COUNTS, **changes: object) -> Model:
    model = make_model(arch="qwen35moe", **changes)
    routing = Routing("file", "imatrix", tuple(range(len(counts))), 8, 2, Phase(50, counts), None)
    sizes = shape_of(model).bytes_of(routing.layers)
    return replace(model, routing=analyse(routing, sizes, every_policy=False))


def chosen(model: Model, budget: int):  # type: ignore[no-untyped-def]
    assert model.routing is not None
    return fixed_set(model, model.routing, budget)


def test_every_layer_first_then_the_most_selected() -> None:
    found = chosen(routed(), 11 * SLOT)
    assert found.experts == (
        (0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 0), (2, 1), (3, 6), (3, 7),
    )  # fmt: skip
    assert (found.n_bytes, found.entries(1)) == (11 * SLOT, 5)
    assert found.hit_rate == pytest.approx((95 + 100 + 100 + 79) / 400)


def test_bytes_are_those_of_each_layer() -> None:
    """An expert of layer 1 takes twice the bytes: fewer of them, and never over the budget."""
    model = make_model()
    tensors = tuple(
        replace(t, n_bytes=2 * t.n_bytes) if t.layer == 1 and "_exps" in t.name else t for t in model.tensors
    )
    found = chosen(routed(tensors=tensors), 12 * SLOT)
    assert found.n_bytes <= 12 * SLOT
    assert found.n_bytes == sum(found.expert_bytes[layer] for layer, _ in found.experts)


def test_never_selected_experts_are_left_out() -> None:
    assert chosen(routed(), 1000 * SLOT).n_bytes == (3 + 5 + 2 + 8) * SLOT


def test_refused() -> None:
    with pytest.raises(RoutingFileError, match="what one token uses"):
        chosen(routed(), 7 * SLOT)
    with pytest.raises(RoutingFileError, match="none of layer 3"):
        chosen(routed(COUNTS[:3]), 12 * SLOT)


def test_files_of_the_fork() -> None:
    model = routed()
    found = chosen(model, 9 * SLOT)
    working_set.check(model)
    lines = working_set.plan_csv(found).splitlines()
    assert lines[0] == "layer,expert" and lines[1] == "0,0" and len(lines) == 10
    assert {line.split(",")[0] for line in lines[1:]} == {"0", "1", "2", "3"}
    data = json.loads(working_set.sidecar(model, found, "plan.csv"))
    assert data["capacity_entries"] == sum(data["per_layer_entries"]) == 9
    assert data["packed_weight_bytes"] == 9 * SLOT and data["calibration_tokens"] == 50
    assert data["plan_csv"] == "plan.csv"


def test_other_models_are_refused() -> None:
    with pytest.raises(OptionError, match="found qwen3moe"):
        working_set.check(make_model())
    fused = make_model(arch="qwen4exp")
    tensors = tuple(replace(t, name=t.name.replace("ffn_up_exps", "ffn_gate_up_exps")) for t in fused.tensors)
    with pytest.raises(OptionError, match="separate"):
        working_set.check(replace(fused, tensors=tensors))
