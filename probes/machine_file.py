"""``moeplan.machine/1``: a machine as JSON, read back and written out.

The shape is public (docs: contract of the machine file). Sizes are bytes, rates bytes per second, times
seconds. A reading is ``{"value", "source", "method", "spread"}``; a bare number means source ``user``.
Unknown keys are ignored, so a newer file still loads.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails

from planner.errors import MachineFileError
from planner.facts import machine as facts
from planner.facts.outcome import ProbeReport
from planner.facts.reading import Reading, Source
from probes.text import clean, printable

SCHEMA = "moeplan.machine/1"
MAX_BYTES = 4 << 20

_Size = Annotated[int, Field(strict=True, gt=0, lt=1 << 60)]
_Amount = Annotated[int, Field(strict=True, ge=0, lt=1 << 60)]
_Count = Annotated[int, Field(strict=True, gt=0, le=65536)]
_Positive = Annotated[float, Field(strict=True, gt=0, lt=1e30, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(strict=True, ge=0, lt=1e9, allow_inf_nan=False)]
_Spread = Annotated[float, Field(strict=True, ge=0, lt=1e30, allow_inf_nan=False)]
_Text = Annotated[str, Field(max_length=4096)]
_Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/\[\]-]{1,64}$")]
_Flag = Annotated[str, Field(pattern=r"^--?[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class _Shape(BaseModel):
    """A JSON object that becomes a fact of the same field names."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    fact: ClassVar[type]

    def to_fact(self) -> Any:
        names = (field.name for field in fields(self.fact))
        return self.fact(**{name: _as_fact(getattr(self, name)) for name in names})


def _as_fact(value: object) -> object:
    if isinstance(value, _Shape):
        return value.to_fact()
    if isinstance(value, tuple):
        return tuple(_as_fact(item) for item in value)
    if isinstance(value, str) and type(value) is str:
        return printable(value)
    return value


class _Reading(_Shape):
    fact = Reading
    value: _Positive
    source: Source = Source.USER
    method: _Text = ""
    spread: _Spread | None = None
    duration_s: _Seconds | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare_number(cls, data: object) -> object:
        return {"value": data} if isinstance(data, int | float) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, handler(core_schema)]}


class _Cpu(_Shape):
    fact = facts.Cpu
    name: _Text | None = None
    physical_cores: _Count | None = None
    performance_cores: _Count | None = None
    logical_cores: _Count | None = None
    isa: tuple[_Text, ...] = ()
    numa_nodes: _Count | None = None
    read_threads: _Reading | None = None


class _Ram(_Shape):
    fact = facts.Ram
    total_bytes: _Size
    available_bytes: _Amount | None = None
    read_bps: _Reading | None = None
    overflow: facts.Overflow | None = None
    idle_bytes: _Amount | None = None

    @model_validator(mode="after")
    def _parts_within_total(self) -> Self:
        _within(self.total_bytes, available_bytes=self.available_bytes, idle_bytes=self.idle_bytes)
        return self


class _Gpu(_Shape):
    fact = facts.Gpu
    id: _Id
    total_bytes: _Size
    name: _Text | None = None
    backend: facts.Backend | None = None
    driver_model: facts.DriverModel | None = None
    unified: Annotated[bool, Field(strict=True)] = False
    used_bytes: _Amount | None = None
    free_bytes: _Amount | None = None
    memory_bps: _Reading | None = None
    h2d_pinned_bps: _Reading | None = None
    h2d_pageable_bps: _Reading | None = None
    f16_flops: _Reading | None = None
    driver: _Text | None = None

    @model_validator(mode="after")
    def _parts_within_total(self) -> Self:
        _within(self.total_bytes, used_bytes=self.used_bytes, free_bytes=self.free_bytes)
        return self


class _ReadPoint(_Shape):
    fact = facts.ReadPoint
    block_bytes: _Size
    queue_depth: _Count
    bps: _Reading


class _Disk(_Shape):
    fact = facts.Disk
    path: _Text
    filesystem: _Text | None = None
    device: _Text | None = None
    read_curve: tuple[_ReadPoint, ...] = ()
    rotational: Annotated[bool, Field(strict=True)] | None = None
    remote: Annotated[bool, Field(strict=True)] = False
    sequential_bps: _Reading | None = None
    mapped_bps: _Reading | None = None


class _LayerPoint(_Shape):
    fact = facts.LayerPoint
    tokens: _Count
    seconds: _Reading


class _LayerRate(_Shape):
    fact = facts.LayerRate
    model: _Text
    device: _Id
    kind: Literal["moe", "dense"]
    expert_type: _Text | None = None
    decode_s: _Reading | None = None
    prefill_s_per_token: _Reading | None = None
    prefill_batch: _Count | None = None
    prefill_fixed_s: _Seconds = 0.0
    prefill_points: tuple[_LayerPoint, ...] = ()
    experts: Literal["device", "host"] = "device"
    read_bytes: _Size | None = None
    layers: _Count | None = None
    threads: _Count | None = None
    crossing_s: _Reading | None = None


class _Engine(_Shape):
    fact = facts.Engine
    kind: _Text
    build: Annotated[int, Field(strict=True, gt=0, lt=1 << 31)] | None = None
    backends: tuple[_Text, ...] = ()
    kv_pairs_on_gpu: tuple[_Text, ...] = ()
    flags: tuple[_Flag, ...] = ()
    server: _Text | None = None


class _Probe(_Shape):
    fact = ProbeReport
    name: _Text
    status: Literal["found", "absent", "failed"]
    reason: _Text = ""
    duration_s: _Seconds = 0.0


class _Machine(_Shape):
    fact = facts.Machine
    schema_: Literal["moeplan.machine/1"] = Field(alias="schema")
    os: facts.Os
    ram: _Ram
    cpu: _Cpu = _Cpu()
    gpus: Annotated[tuple[_Gpu, ...], Field(max_length=256)] = ()
    disk: _Disk | None = None
    layers: tuple[_LayerRate, ...] = ()
    engine: _Engine | None = None
    probes: tuple[_Probe, ...] = ()

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        ids = [gpu.id for gpu in self.gpus]
        twice = [i for n, i in enumerate(ids) if i in ids[:n]]
        if twice:
            raise ValueError(f"every gpu id once, not {twice[0]} twice")
        return self


def _within(total: int, **parts: int | None) -> None:
    for name, value in parts.items():
        if value is not None and value > total:
            raise ValueError(f"{name} of at most total_bytes ({total}), not {value}")


def load(text: str, origin: str) -> facts.Machine:
    """JSON text → Machine.

    Args:
        origin: what to call the text in an error, e.g. its path.

    Raises:
        MachineFileError: not JSON, not this schema, or a value that cannot be; names the JSON path.
    """
    if len(text) > MAX_BYTES:
        raise MachineFileError(origin, expected=f"at most {MAX_BYTES} characters", found=str(len(text)))
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as e:
        reason = "nested too deeply" if isinstance(e, RecursionError) else clean(str(e))
        raise MachineFileError(origin, expected=f"JSON of {SCHEMA}", found=reason) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = _shown(data.get("schema")) if isinstance(data, dict) else "no JSON object"
        raise MachineFileError(
            f"{origin}: schema", expected=SCHEMA, found=found, advice="write one with: moeplan probe --record"
        )
    try:
        machine: facts.Machine = _Machine.model_validate(data).to_fact()
    except ValidationError as e:
        raise _first_problem(origin, e) from None
    return machine


def _first_problem(origin: str, error: ValidationError) -> MachineFileError:
    problems = error.errors(include_url=False)
    first: ErrorDetails = problems[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    message = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    expected = {
        "missing": "this key",
        "model_type": "an object",
        "model_attributes_type": "an object",
        "tuple_type": "an array",
    }.get(first["type"], message)
    found = "nothing" if first["type"] == "missing" else _shown(first["input"])
    more = f"{len(problems) - 1} more like this" if len(problems) > 1 else ""
    subject = clean(f"{origin}: {path.lstrip('.') or 'the file'}", 300)
    return MachineFileError(subject, expected=clean(expected), found=found, advice=more)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)}"
    return clean(json.dumps(value, default=str), 80)


def dump(machine: facts.Machine) -> str:
    """Machine → JSON text that ``load`` reads back to an equal Machine. What is not known is left out."""
    return json.dumps({"schema": SCHEMA, **_known(asdict(machine))}, indent=1) + "\n"


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = ((key, _known(item)) for key, item in value.items())
        return {key: item for key, item in pairs if item not in (None, [], {}, "")}
    if isinstance(value, list | tuple):
        return [_known(item) for item in value]
    return printable(value) if isinstance(value, str) else value


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of ``moeplan.machine/1``."""
    schema = _Machine.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": SCHEMA}
