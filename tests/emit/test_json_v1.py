from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from emit.formats import Format, render
from emit.json_v1 import model_json, plan_json, schema_text, schemas
from planner.facts.reading import Source
from planner.plans.decision import Evidence
from planner.plans.oracle import Confirmation, Difference, Oracle
from planner.plans.plan import Lint, Plan
from planner.plans.speed import Band
from planner.units import MIB
from tests.builders import make_layer, make_machine, make_model, make_settings
from tests.emit.plans import NASTY, make_candidate, make_decision, make_plan, refused_plan

DOCS = Path(__file__).parents[2] / "docs" / "schema"
CONTRACT = {
    "": "schema verdict model workload settings argv memory speed decisions exchange warnings refusal",
    "model": "path arch name n_layer n_expert n_expert_used file_bytes expert_bytes fingerprint",
    "workload": "n_ctx n_parallel prompt_tokens answer_tokens goal",
    "settings": "n_gpu_layers n_cpu_moe override_tensor moe_cache_mib n_ubatch n_batch type_k type_v flash_attn n_ctx "
    "n_parallel load_mode threads threads_batch tensor_split devices prefill_device decode_device op_offload spec_type",
    "speed": "decode_tps prefill_tps turn_s bound_by",
    "speed.turn_s": "low mid high",
    "memory.devices.0": "id total_bytes used_before_bytes model_bytes context_bytes compute_bytes cache_bytes "
    "overhead_bytes predicted_bytes headroom_bytes",
    "memory.host": "model_bytes context_bytes compute_bytes pinned_bytes mapped_bytes predicted_bytes available_bytes "
    "headroom_bytes",
    "decisions.0": "rule setting flag value headline confidence lossless because alternatives",
    "decisions.0.because.0": "fact value unit source",
    "decisions.0.alternatives.0": "value outcome by detail",
    "exchange.0": "change effect",
    "warnings.0": "code message",
}


def loaded(plan: Plan) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(plan_json(plan), parse_constant=pytest.fail)
    jsonschema.validate(data, schemas()["moeplan.plan/1"])
    return data


@pytest.mark.parametrize("where", CONTRACT)
def test_keys_are_those_of_the_contract(where: str) -> None:
    node: Any = loaded(make_plan())
    for step in where.split(".") if where else ():
        node = node[int(step)] if step.isdigit() else node[step]
    assert list(node) == CONTRACT[where].split()


def test_a_plan() -> None:
    data = loaded(make_plan())
    assert data["argv"][:5] == ["llama-server", "-m", "model.gguf", "-fit", "off"]
    assert data["refusal"] is None and data["verdict"] == "fits"
    assert data["decisions"][0]["flag"] == "--n-cpu-moe"
    device = data["memory"]["devices"][0]
    assert device["predicted_bytes"] == sum(
        device[f"{part}_bytes"] for part in ("model", "context", "compute", "cache", "overhead")
    )


def test_a_refusal_names_what_is_short_and_what_would_fit() -> None:
    data = loaded(refused_plan())
    assert data["verdict"] == "refused"
    assert data["refusal"]["shortfalls"] == [{"device": "CUDA0", "needed_bytes": 6 << 30, "available_bytes": 4 << 30}]
    assert data["refusal"]["nearest"]["n_ctx"] == 2048
    plan = refused_plan()
    assert plan.refusal is not None
    assert loaded(replace(plan, refusal=replace(plan.refusal, nearest=None)))["refusal"]["nearest"] is None


def test_a_check_adds_source_and_lint() -> None:
    finding = Lint("no-headroom", "-ngl", "too little", "--n-cpu-moe 3")
    data = loaded(make_plan(lint=(finding,)))
    assert data["source"] == "user flags"
    assert data["lint"] == [{"code": "no-headroom", "flag": "-ngl", "message": "too little", "fix": "--n-cpu-moe 3"}]
    assert loaded(make_plan(lint=(replace(finding, fix=None),)))["lint"][0]["fix"] is None
    assert loaded(make_plan(lint=()))["lint"] == []
    assert not {"source", "lint"} & set(loaded(make_plan()))


def test_where_experts_are_computed() -> None:
    model, machine = make_plan().model, make_plan().machine

    def devices(**changes: Any) -> tuple[str, str]:
        settings = make_settings(n_gpu_layers=5, **changes)
        node = loaded(make_plan(model, machine, settings=settings))["settings"]
        return node["prefill_device"], node["decode_device"]

    assert devices(n_cpu_moe=0) == ("CUDA0", "CUDA0")
    assert devices(n_cpu_moe=2) == ("CUDA0", "CPU")
    assert devices(n_cpu_moe=2, op_offload=False) == ("CPU", "CPU")
    assert devices(n_cpu_moe=2, n_ubatch=16) == ("CPU", "CPU")
    assert devices(n_cpu_moe=4, moe_cache_mib=64) == ("CUDA0", "CUDA0")


def test_unknown_is_null_and_numbers_are_finite() -> None:
    machine = make_machine()
    machine = replace(machine, ram=replace(machine.ram, available_bytes=None))
    settings = make_settings(devices=(), n_gpu_layers=0)
    candidate = make_candidate(settings, machine)
    nan = Band(float("nan"), 1.0, float("inf"))
    decision = make_decision(because=(Evidence("rate", float("nan"), "bytes/s", Source.ASSUMED),), setting="headroom")
    plan = make_plan(
        machine=machine,
        settings=settings,
        chosen=replace(candidate, speed=replace(candidate.speed, turn_s=nan)),
        decisions=(decision,),
    )
    data = loaded(plan)
    assert data["memory"]["host"]["available_bytes"] is None and data["memory"]["host"]["headroom_bytes"] is None
    assert data["speed"]["turn_s"] == {"low": None, "mid": 1.0, "high": None}
    assert data["decisions"][0]["because"][0]["value"] is None and data["decisions"][0]["flag"] is None
    assert data["memory"]["devices"] == []


@pytest.mark.parametrize("path", [*NASTY, "not utf-8 \udcff.gguf"])
def test_json_is_safe_for_any_terminal(path: str) -> None:
    model = make_model(path=path, name=path, arch=path, metadata=((path, path), ("general.nan", float("nan"))))
    for text in (plan_json(make_plan(model)), model_json(model)):
        assert text.isascii() and all(char.isprintable() or char == "\n" for char in text)
        assert json.loads(text)
    if "\udcff" not in path:
        assert loaded(make_plan(model))["model"]["path"] == path


def test_a_model() -> None:
    layers = (
        make_layer(0, window=128), make_layer(1, indexer_k=64), make_layer(2, n_embd_k=100), make_layer(3)
    )  # fmt: skip
    model = make_model(layers=layers, metadata=(("general.name", "x"), ("rope.scale", float("inf"))))
    data = json.loads(model_json(model))
    jsonschema.validate(data, schemas()["moeplan.model/1"])
    assert data["schema"] == "moeplan.model/1" and data["metadata"] == {"general.name": "x", "rope.scale": None}
    assert [layer["window"] for layer in data["layers"]] == [128, None, None, None]
    assert data["layers"][0]["roles"]["expert"] == {
        "n_tensors": 3, "n_bytes": 3 * 256 * 128 * 8 * 2, "types": {"F16": 3 * 256 * 128 * 8 * 2}
    }  # fmt: skip
    assert data["kv_bytes_per_token"]["f16"] == 2 * ((128 + 128 + 64) + (100 + 128) + (128 + 128))
    assert "q8_0" not in data["kv_bytes_per_token"], "100 elements are no whole blocks of 32"


def test_shipped_schemas_are_current() -> None:
    for name, schema in schemas().items():
        jsonschema.Draft202012Validator.check_schema(schema)
        file = DOCS / f"{name.replace('/', '-')}.json"
        assert file.read_text() == schema_text(schema), f"write emit.json_v1.schema_text to {file.name}"


def test_the_schema_refuses_what_is_not_a_plan() -> None:
    schema = schemas()["moeplan.plan/1"]
    good = loaded(make_plan())
    for broken in (
        {**good, "schema": "moeplan.plan/2"},
        {**good, "verdict": "maybe"},
        {**good, "extra": 1},
        {key: value for key, value in good.items() if key != "argv"},
        {**good, "refusal": {}},
        {key: value for key, value in good.items() if key != "schema"},
        _with(good, "model.extra", 1),
        _with(good, "memory.devices.0.extra", 1),
        _with(good, "memory.devices.0.model_bytes", -1),
        _with(good, "memory.host.model_bytes", 1.5),
        _with(good, "decisions.0.because", []),
        _with(good, "decisions.0.because.0.source", "guess"),
        _with(good, "speed.turn_s.mid", "fast"),
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)


def _with(data: dict[str, Any], where: str, value: object) -> dict[str, Any]:
    """A copy with another value at a path."""
    copy: dict[str, Any] = json.loads(json.dumps(data))
    node: Any = copy
    *steps, last = where.split(".")
    for step in steps:
        node = node[int(step)] if step.isdigit() else node[step]
    node[last] = value
    return copy


def test_every_object_of_the_schemas_is_closed() -> None:
    def objects(node: object) -> Iterator[dict[str, Any]]:
        if isinstance(node, dict):
            if "properties" in node:
                yield node
            node = list(node.values())
        if isinstance(node, list):
            for item in node:
                yield from objects(item)

    found = [item for schema in schemas().values() for item in objects(schema)]
    assert len(found) >= 20
    assert all(item["additionalProperties"] is False for item in found)


def test_a_number_that_is_none_is_an_error() -> None:
    plan = make_plan()
    settings = replace(plan.chosen.settings, tensor_split=(float("nan"), 1.0))
    with pytest.raises(ValueError, match="JSON compliant"):
        plan_json(replace(plan, chosen=replace(plan.chosen, settings=settings)))


def test_whole_numbers_stay_fractions_where_the_shape_says_so() -> None:
    plan = make_plan()
    band = Band(1, 2, 3)
    text = plan_json(replace(plan, chosen=replace(plan.chosen, speed=replace(plan.chosen.speed, turn_s=band))))
    assert '"low": 1.0' in text and '"high": 3.0' in text


def test_formats() -> None:
    plan = make_plan()
    assert render(plan, Format.JSON) == plan_json(plan)
    assert render(plan, Format.SH).startswith("#!/bin/sh\n")
    assert render(plan, Format.PS1).startswith("# Fits") and "& 'llama-server' `\n" in render(plan, Format.PS1)
    assert "LLAMA_ARG_FIT=off\n" in render(plan, Format.ENV)
    with pytest.raises(ValueError, match=r"emit\.text"):
        render(plan, Format.TEXT)


def test_the_word_of_the_engine() -> None:
    plan = make_plan()
    assert loaded(plan)["memory"]["oracle"] is None
    differences = (
        Difference("CUDA0", "compute", 412 * MIB, 112 * MIB),
        Difference("Host", "model", 1 * MIB, 2 * MIB),
    )
    oracle = Oracle(Confirmation.DISAGREES, 11549, True, differences, (("CUDA0", 300 * MIB),))
    said = loaded(replace(plan, oracle=oracle))["memory"]["oracle"]
    assert (said["outcome"], said["build"], said["source"], said["reason"]) == ("disagrees", 11549, "stored", None)
    assert (said["residual_bytes"], said["reserved_bytes"]) == (300 * MIB, {"CUDA0": 300 * MIB})
    assert said["differences"][1] == {
        "device": "Host",
        "term": "model",
        "engine_bytes": 1 * MIB,
        "predicted_bytes": 2 * MIB,
        "residual_bytes": -1 * MIB,
    }
    silent = Oracle(Confirmation.FAILED, 11549, reason="did not end\x1b[31m")
    said = loaded(replace(plan, oracle=silent))["memory"]["oracle"]
    assert (said["source"], said["residual_bytes"], said["reason"]) == (None, None, "did not end\x1b[31m")
