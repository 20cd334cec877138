"""What a machine file may hold: pydantic-core schemas that make the facts themselves, one per fact.

pydantic-core alone, not pydantic: it is a fifth of the import, and there are no classes to build (docs/decisions/006).
A key is named as the field of its fact and has the field's default; a default of None allows null. Keys that no fact
has are ignored. Arrays are bounded: otherwise a file of 4 MiB takes a gigabyte.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from planner.facts import machine as facts
from planner.facts.outcome import ProbeReport
from planner.facts.reading import Reading, Source
from probes.text import printable

Core = dict[str, Any]
"""A ``pydantic_core.CoreSchema``."""

NO_GPU: Final = r"^(-.*|[Nn][Oo][Nn][Ee]|[Cc][Pp][Uu]|[Hh][Oo][Ss][Tt])$"
"""Names that llama.cpp and moeplan read as something else than a GPU: a flag, ``--device none``, the host."""
LEAST_RATE: Final = 1e-6
"""Bytes or operations per second; with less, times of a plan would not be finite."""
LEAST_SECONDS: Final = 1e-12


def _after(schema: Core, function: Any) -> Core:
    return {"type": "function-after", "schema": schema, "function": {"type": "no-info", "function": function}}


def _default(schema: Core, value: object) -> Core:
    return {"type": "default", "schema": schema, "default": value}


def _int(**bounds: int) -> Core:
    return {"type": "int", "strict": True, **bounds}


def _float(**bounds: float) -> Core:
    return {"type": "float", "strict": True, "allow_inf_nan": False, **bounds}


def _matching(pattern: str) -> Core:
    return {"type": "str", "pattern": pattern}


def _one_of(kind: type[StrEnum]) -> Core:
    return {"type": "enum", "cls": kind, "members": list(kind), "sub_type": "str"}


def _words(*expected: str) -> Core:
    return {"type": "literal", "expected": list(expected)}


def _array(item: Core, most: int) -> Core:
    """It ends at the first item that is wrong: a million wrong items would be a gigabyte of errors."""
    items = {"items_schema": [item], "variadic_item_index": 0}
    return {"type": "tuple", **items, "max_length": most, "fail_fast": True}


def _fact(kind: type, /, **keys: Core) -> Core:
    """An object that becomes a ``kind``: a frozen dataclass with slots whose fields are ``keys``."""
    items = [
        {"type": "dataclass-field", "name": item.name, "schema": _as_declared(keys[item.name], item.default)}
        for item in fields(kind)
    ]
    values = {"type": "dataclass-args", "dataclass_name": kind.__name__, "fields": items, "extra_behavior": "ignore"}
    names = [item["name"] for item in items]
    return {"type": "dataclass", "cls": kind, "schema": values, "fields": names, "slots": True, "frozen": True}


def _as_declared(schema: Core, default: object) -> Core:
    if default is MISSING:
        return schema
    return _default({"type": "nullable", "schema": schema} if default is None else schema, default)


def _reading(least: float) -> Core:
    """A reading object, or a bare number that the user vouches for."""
    reading = _fact(
        Reading,
        value=_float(ge=least, lt=1e30),
        source=_default(_one_of(Source), Source.USER),
        method=_TEXT,
        spread=_float(ge=0, lt=1e30),
        duration_s=_SECONDS,
    )
    return {"type": "function-before", "schema": reading, "function": {"type": "no-info", "function": _of_user}}


def _of_user(data: object) -> object:
    return {"value": data} if isinstance(data, int | float) else data


def _named(name: str, schema: Core) -> tuple[Core, Core]:
    """A schema that is used often: its definition, and what stands for it."""
    return {**schema, "ref": name}, {"type": "definition-ref", "schema_ref": name}


def _parts_within_total(fact: facts.Ram | facts.Gpu) -> facts.Ram | facts.Gpu:
    for name in ("available_bytes", "idle_bytes", "used_bytes", "free_bytes"):
        value = getattr(fact, name, None)
        if value is not None and value > fact.total_bytes:
            raise ValueError(f"{name} of at most total_bytes ({fact.total_bytes}), not {value}")
    return fact


def _cores_are_parts(cpu: facts.Cpu) -> facts.Cpu:
    """Performance cores are physical ones, and every physical core is at least one logical."""
    counts = [(name, getattr(cpu, name)) for name in ("performance_cores", "physical_cores", "logical_cores")]
    known = [(name, n) for name, n in counts if n is not None]
    for (less, n), (more, most) in pairwise(known):
        if n > most:
            raise ValueError(f"{less} of at most {more} ({most}), not {n}")
    return cpu


def is_gpu(name: str) -> str:
    """The name, if it can be a GPU's. Raises ValueError."""
    if re.match(NO_GPU, name):
        raise ValueError("a device as llama.cpp names it (CUDA0, Vulkan1), neither a flag nor CPU, host or none")
    return name


def _ids_are_unique(machine: facts.Machine) -> facts.Machine:
    ids = [gpu.id for gpu in machine.gpus]
    twice = [i for n, i in enumerate(ids) if i in ids[:n]]
    if twice:
        raise ValueError(f"every gpu id once, not {twice[0]} twice")
    return machine


_SIZE = _int(gt=0, lt=1 << 60)
_AMOUNT = _int(ge=0, lt=1 << 60)
_COUNT = _int(gt=0, le=65536)
_SECONDS = _float(ge=0, lt=1e9)
_BOOL: Core = {"type": "bool", "strict": True}
_TEXT = _after({"type": "str", "max_length": 4096}, printable)
_ID = _matching(r"^[A-Za-z0-9_.:/\[\]-]{1,64}$")
_FLAG = _matching(r"^--?[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
_RATE_DEFINED, _RATE = _named("rate", _reading(LEAST_RATE))
_TIME_DEFINED, _TIME = _named("seconds", _reading(LEAST_SECONDS))
_NUMBER_DEFINED, _NUMBER = _named("number", _reading(1))

_CPU = _fact(
    facts.Cpu,
    name=_TEXT,
    physical_cores=_COUNT,
    performance_cores=_COUNT,
    logical_cores=_COUNT,
    isa=_array(_TEXT, 1024),
    numa_nodes=_COUNT,
    read_threads=_NUMBER,
)
_RAM = _fact(
    facts.Ram,
    total_bytes=_SIZE,
    available_bytes=_AMOUNT,
    read_bps=_RATE,
    overflow=_one_of(facts.Overflow),
    idle_bytes=_AMOUNT,
)
_GPU = _fact(
    facts.Gpu,
    id=_after(_ID, is_gpu),
    total_bytes=_SIZE,
    name=_TEXT,
    backend=_one_of(facts.Backend),
    driver_model=_one_of(facts.DriverModel),
    unified=_BOOL,
    used_bytes=_AMOUNT,
    free_bytes=_AMOUNT,
    memory_bps=_RATE,
    h2d_pinned_bps=_RATE,
    h2d_pageable_bps=_RATE,
    f16_flops=_RATE,
    driver=_TEXT,
    threads=_int(gt=0, lt=1 << 24),
)
_DISK = _fact(
    facts.Disk,
    path=_TEXT,
    filesystem=_TEXT,
    device=_TEXT,
    read_curve=_array(_fact(facts.ReadPoint, block_bytes=_SIZE, queue_depth=_COUNT, bps=_RATE), 256),
    rotational=_BOOL,
    remote=_BOOL,
    sequential_bps=_RATE,
    mapped_bps=_RATE,
)
_LAYER = _fact(
    facts.LayerRate,
    model=_TEXT,
    device=_ID,
    kind=_words("moe", "dense"),
    expert_type=_TEXT,
    decode_s=_TIME,
    prefill_s_per_token=_TIME,
    prefill_batch=_COUNT,
    prefill_fixed_s=_SECONDS,
    prefill_points=_array(_fact(facts.LayerPoint, tokens=_COUNT, seconds=_TIME), 64),
    experts=_words("device", "host"),
    read_bytes=_SIZE,
    layers=_COUNT,
    threads=_COUNT,
    crossing_s=_TIME,
)
_ENGINE = _fact(
    facts.Engine,
    kind=_TEXT,
    build=_int(gt=0, lt=1 << 31),
    backends=_array(_TEXT, 1024),
    kv_pairs_on_gpu=_array(_TEXT, 1024),
    flags=_array(_FLAG, 1024),
    server=_TEXT,
)
_PROBE = _fact(
    ProbeReport,
    name=_TEXT,
    status=_words("found", "absent", "failed"),
    reason=_default(_TEXT, ""),
    duration_s=_default(_SECONDS, 0.0),
)
_MACHINE = _fact(
    facts.Machine,
    os=_one_of(facts.Os),
    ram=_after(_RAM, _parts_within_total),
    cpu=_after(_CPU, _cores_are_parts),
    gpus=_array(_after(_GPU, _parts_within_total), 256),
    disk=_DISK,
    layers=_array(_LAYER, 4096),
    engine=_ENGINE,
    probes=_array(_PROBE, 256),
)
MACHINE: Final[Core] = {
    "type": "definitions",
    "schema": _after(_MACHINE, _ids_are_unique),
    "definitions": [_RATE_DEFINED, _TIME_DEFINED, _NUMBER_DEFINED],
}
"""A whole file but for its key ``schema``; makes a ``planner.facts.machine.Machine``."""
