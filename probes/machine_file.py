"""``moeplan.machine/1``: a machine as JSON, read back and written out.

The shape is public (docs: contract of the machine file). Sizes are bytes, rates bytes per second, times
seconds. A reading is ``{"value", "source", "method", "spread"}``; a bare number means source ``user``.
Unknown keys are ignored, so a newer file still loads.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from planner.errors import MachineFileError
from planner.facts.machine import Machine
from probes.machine_shape import MACHINE, NO_GPU, is_gpu
from probes.text import clean, printable

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator, ValidationError

SCHEMA = "moeplan.machine/1"
MAX_BYTES = 4 << 20


@cache
def _validator() -> SchemaValidator:
    from pydantic_core import SchemaValidator

    schema: Any = MACHINE
    return SchemaValidator(schema)


def load(text: str, origin: str) -> Machine:
    """JSON text → Machine.

    Args:
        origin: what to call the text in an error, e.g. its path.

    Raises:
        MachineFileError: not JSON, not this schema, or a value that cannot be; names the JSON path.
    """
    if len(text) > MAX_BYTES:
        raise MachineFileError(origin, expected=f"at most {MAX_BYTES} characters", found=str(len(text)))
    from pydantic_core import ValidationError

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
        machine: Machine = _validator().validate_python(data)
    except ValidationError as e:
        raise _first_problem(origin, e) from None
    return machine


def _first_problem(origin: str, error: ValidationError) -> MachineFileError:
    problems = error.errors(include_url=False)
    first = problems[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    message = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    expected = {
        "missing": "this key",
        "dataclass_type": "an object",
        "tuple_type": "an array",
        "too_long": f"at most {first.get('ctx', {}).get('max_length')} items",
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


def dump(machine: Machine) -> str:
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
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
    from pydantic_core import core_schema

    class Shown(GenerateJsonSchema):
        """What functions check, in words of JSON Schema."""

        def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
            reading = super().function_before_schema(schema)
            return {"anyOf": [{"type": "number", "minimum": reading["properties"]["value"]["minimum"]}, reading]}

        def function_after_schema(self, schema: core_schema.AfterValidatorFunctionSchema) -> JsonSchemaValue:
            shown = super().function_after_schema(schema)
            return {**shown, "not": {"pattern": NO_GPU}} if schema["function"]["function"] is is_gpu else shown

    machine: Any = MACHINE
    schema = Shown().generate(machine)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema["properties"] = {"schema": {"const": SCHEMA, "type": "string"}, **schema["properties"]}
    schema["required"] = ["schema", *schema["required"]]
    return {**head, **schema, "title": SCHEMA}
