from __future__ import annotations

import json
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from planner.errors import MachineFileError
from planner.facts.machine import Backend, Cpu, Disk, DriverModel, Engine, Gpu, Machine, Os, Ram, ReadPoint
from planner.facts.reading import Reading, Source
from probes import machine_file

MACHINES = sorted((Path(__file__).parent / "machines").glob("*.json"))
SMALL: dict[str, Any] = {"schema": "moeplan.machine/1", "os": "linux", "ram": {"total_bytes": 1024}}


def load(**changes: Any) -> Machine:
    return machine_file.load(json.dumps({**SMALL, **changes}), "m.json")


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_recorded_files_round_trip_and_follow_the_schema(path: Path) -> None:
    text = path.read_text()
    machine = machine_file.load(text, path.name)
    assert machine_file.dump(machine) == text
    jsonschema.validate(json.loads(text), machine_file.json_schema())


def test_the_wddm_desktop() -> None:
    machine = machine_file.load(next(p for p in MACHINES if "wddm" in p.name).read_text(), "")
    (gpu,) = machine.gpus
    assert (gpu.total_bytes >> 20, (gpu.used_bytes or 0) >> 20) == (16376, 600)
    assert (gpu.driver_model, gpu.backend) == (DriverModel.WDDM, Backend.CUDA)
    assert gpu.h2d_pinned_bps == Reading(23.46e9, Source.MEASURED, "pinned copies, contiguous")
    assert machine.engine is not None and "--moe-cache-mib" in machine.engine.flags


def test_measured_figures_round_trip() -> None:
    """A spread has the unit of its value, so it may be billions."""
    reading = Reading(900e9, Source.MEASURED, "device copy", 12e9, 0.4)
    gpu = Gpu("CUDA0", 100, memory_bps=reading, h2d_pageable_bps=reading, driver="580.95")
    disk = Disk("/m", "ext4", read_curve=(ReadPoint(4096, 8, reading),), sequential_bps=reading, mapped_bps=reading)
    cpu, ram = Cpu(read_threads=Reading(2.0, Source.MEASURED)), Ram(1024, 512, reading, idle_bytes=1000)
    machine = Machine(Os.LINUX, ram, cpu, (gpu,), disk)
    assert machine_file.load(machine_file.dump(machine), "m.json") == machine


def test_the_smallest_file() -> None:
    assert load() == Machine(Os.LINUX, Ram(1024))


def test_bare_number_means_user() -> None:
    assert load(ram={"total_bytes": 1024, "read_bps": 5e10}).ram.read_bps == Reading(5e10, Source.USER)


def test_unknown_keys_are_tolerated() -> None:
    assert load(future={"a": 1}, ram={"total_bytes": 1024, "colour": "red"}) == load()


def test_control_characters_do_not_get_in() -> None:
    assert load(cpu={"name": "a\x1b[31mb\u202e"}).cpu.name == "a\ufffd[31mb\ufffd"


def test_paths_keep_their_blanks() -> None:
    engine = {"kind": "llama.cpp", "server": "/my  models/llama-server"}
    assert load(engine=engine).engine == Engine("llama.cpp", server="/my  models/llama-server")


def test_names_that_are_no_unicode_still_dump() -> None:
    machine = replace(load(), disk=Disk("/m/\udcff"))
    assert machine_file.load(machine_file.dump(machine), "").disk == Disk("/m/\ufffd")


GPU = {"id": "CUDA0", "total_bytes": 100}
LAYER = {"model": "x", "device": "CPU", "kind": "moe"}
GUESS = {"value": 1, "source": "guess"}


@pytest.mark.parametrize(
    ("changes", "path", "expected", "found"),
    [
        ({"os": "beos"}, "os", "'linux'", '"beos"'),
        ({"ram": {}}, "ram.total_bytes", "this key", "nothing"),
        ({"ram": {"total_bytes": 0}}, "ram.total_bytes", "greater than 0", "0"),
        ({"ram": {"total_bytes": 1 << 60}}, "ram.total_bytes", "less than", str(1 << 60)),
        ({"ram": {"total_bytes": "16GB"}}, "ram.total_bytes", "valid integer", '"16GB"'),
        ({"ram": {"total_bytes": True}}, "ram.total_bytes", "valid integer", "true"),
        ({"ram": {"total_bytes": 5, "available_bytes": 6}}, "ram", "available_bytes of at most", "an object"),
        ({"ram": {"total_bytes": 5, "read_bps": -1}}, "ram.read_bps.value", "greater than", "-1"),
        ({"ram": {"total_bytes": 5, "read_bps": GUESS}}, "ram.read_bps.source", "'user'", "guess"),
        ({"gpus": 5}, "gpus", "an array", "5"),
        ({"gpus": [GPU, {"id": "CUDA1"}]}, "gpus[1].total_bytes", "this key", "nothing"),
        ({"gpus": [{**GPU, "used_bytes": 101}]}, "gpus[0]", "used_bytes of at most total_bytes (100)", "an object"),
        ({"gpus": [{**GPU, "id": "a\x1bb"}]}, "gpus[0].id", "pattern", "u001b"),
        ({"gpus": [{**GPU, "id": "--help"}]}, "gpus[0].id", "neither a flag nor CPU", "--help"),
        ({"gpus": [{**GPU, "id": "none"}]}, "gpus[0].id", "as llama.cpp names it (CUDA0", "none"),
        ({"gpus": [{**GPU, "id": "CPU"}]}, "gpus[0].id", "as llama.cpp names it (CUDA0", "CPU"),
        ({"gpus": [{**GPU, "id": "Host"}]}, "gpus[0].id", "as llama.cpp names it (CUDA0", "Host"),
        ({"gpus": [GPU, GPU]}, "the file", "every gpu id once", "an object"),
        ({"cpu": {"physical_cores": 8, "logical_cores": 4}}, "cpu", "physical_cores of at most", "an object"),
        ({"cpu": {"physical_cores": 8, "performance_cores": 9}}, "cpu", "performance_cores of at most", "an object"),
        ({"cpu": {"physical_cores": 2.5}}, "cpu.physical_cores", "valid integer", "2.5"),
        ({"engine": {"kind": "llama.cpp", "flags": ["rm -rf"]}}, "engine.flags[0]", "pattern", "rm -rf"),
        ({"ram": {"total_bytes": 5, "read_bps": 1e-300}}, "ram.read_bps.value", "0.000001", "1e-300"),
        ({"gpus": [{**GPU, "f16_flops": {"value": 1e-9}}]}, "gpus[0].f16_flops.value", "0.000001", "1e-09"),
        ({"cpu": {"read_threads": 0.5}}, "cpu.read_threads.value", "1", "0.5"),
        ({"layers": [{**LAYER, "decode_s": 1e-300}]}, "layers[0].decode_s.value", "0.000000000001", "1e-300"),
        ({"layers": [{**LAYER, "kind": "odd"}]}, "layers[0].kind", "'moe' or 'dense'", "odd"),
    ],
)  # fmt: skip
def test_the_wrong_place_is_named(changes: dict[str, Any], path: str, expected: str, found: str) -> None:
    with pytest.raises(MachineFileError) as caught:
        load(**changes)
    assert caught.value.subject == f"m.json: {path}"
    assert expected in caught.value.expected
    assert found in caught.value.found
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["CUDA0", "Vulkan1", "Metal", "RPC[127.0.0.1:50052]", "CPU0", "nonesuch", "hosted"])
def test_names_of_gpus(name: str) -> None:
    assert load(gpus=[{**GPU, "id": name}]).gpus[0].id == name
    jsonschema.validate({**SMALL, "gpus": [{**GPU, "id": name}]}, machine_file.json_schema())


@pytest.mark.parametrize("item", ['{"name": "a", "status": "found"}', "{}", "1"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"probes": [', "]"),
        ('"layers": [', "]"),
        ('"gpus": [', "]"),
        ('"cpu": {"isa": [', "]}"),
        ('"disk": {"path": "", "read_curve": [', "]}"),
        ('"engine": {"kind": "x", "flags": [', "]}"),
        ('"layers": [{"model": "x", "device": "CPU", "kind": "moe", "prefill_points": [', "]}]"),
    ],
)
def test_a_crowded_file_stays_small(before: str, after: str, item: str) -> None:
    """A tenth of the largest file: its values and errors take a few times its size, not hundreds of times."""
    room = machine_file.MAX_BYTES // 10
    text = f"{json.dumps(SMALL)[:-1]}, {before}{', '.join([item] * (room // (len(item) + 2)))}{after}}}"
    with pytest.raises(MachineFileError) as caught:
        tracemalloc.start()
        try:
            machine_file.load(text, "m.json")
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    assert peak < 40 * room
    assert "Tuple" not in caught.value.expected


def test_arrays_have_a_most() -> None:
    most = [{"name": "a", "status": "found"}] * 256
    assert len(load(probes=most).probes) == 256
    with pytest.raises(MachineFileError) as caught:
        load(probes=[*most, most[0]])
    assert (caught.value.expected, caught.value.found) == ("at most 256 items", "an array of 257")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "Expecting value"),
        ("{", "Expecting"),
        ("[]", "no JSON object"),
        ("{}", "null"),
        ('{"schema": "moeplan.machine/9"}', "machine/9"),
        ('{"schema": {"a": "\\u001b"}}', "an object"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "limit"),
        (" " * ((4 << 20) + 1), "4194305"),
    ],
)
def test_what_is_no_machine_file(text: str, found: str) -> None:
    with pytest.raises(MachineFileError) as caught:
        machine_file.load(text, "m.json")
    assert found in caught.value.found
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none(number: str) -> None:
    text = json.dumps({**SMALL, "ram": {"total_bytes": 5, "read_bps": 1}}).replace(
        '"read_bps": 1', f'"read_bps": {number}'
    )
    with pytest.raises(MachineFileError, match=r"ram\.read_bps\.value"):
        machine_file.load(text, "m.json")


def test_schema_refuses_what_load_refuses() -> None:
    schema = machine_file.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(SMALL | {"ram": {"total_bytes": 1, "read_bps": 2.5}}, schema)
    for wrong in (
        {"os": "beos"},
        {"ram": {}},
        {"schema": "x"},
        {"ram": {"total_bytes": 1, "read_bps": 0}},
        {"ram": {"total_bytes": 1, "read_bps": {"value": 0}}},
        {"gpus": [{**GPU, "id": "none"}]},
        {"gpus": [{**GPU, "id": "-ngl"}]},
        {"probes": [{"name": "a", "status": "found"}] * 257},
        {"layers": [{**LAYER, "kind": "odd"}]},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(SMALL | wrong, schema)


def test_every_field_of_a_fact_is_in_the_file() -> None:
    """A key that the shape lacks would be lost on the way."""
    shown = machine_file.json_schema()
    assert list(shown["properties"]) == ["schema", *(field.name for field in fields(Machine))]
    gpu = shown["properties"]["gpus"]["items"]
    assert list(gpu["properties"]) == [field.name for field in fields(Gpu)]
    assert shown["required"] == ["schema", "os", "ram"] and gpu["required"] == ["id", "total_bytes"]
