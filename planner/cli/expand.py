"""A command takes a dataclass of options; Typer sees one parameter per field."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with every dataclass parameter replaced by its fields, as keyword options."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}

    @wraps(command)
    def call(**values: Any) -> None:
        arguments = {name: _take(kind, values) for name, kind in groups.items()}
        command(**values, **arguments)

    plain = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name not in groups
    ]
    options = [option for kind in groups.values() for option in _parameters(kind)]
    signature = inspect.Signature([*plain, *options])
    setattr(call, "__signature__", signature)  # noqa: B010 - mypy knows no such attribute of a function
    call.__annotations__ = {name: p.annotation for name, p in signature.parameters.items()}
    return call


def _parameters(kind: type) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(kind)
        if field.default is not MISSING
    ]


def _take(kind: type, values: dict[str, Any]) -> Any:
    """An instance of ``kind`` from its fields, which leave ``values``."""
    return kind(**{field.name: values.pop(field.name) for field in fields(kind)})
