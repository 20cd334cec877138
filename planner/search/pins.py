"""``--pin SETTING=VALUE``: values the planner may not change."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from math import isfinite
from typing import Any, Final

from planner import units
from planner.cost.kv_types import BLOCK
from planner.cost.patterns import override_pattern
from planner.errors import OptionError
from planner.plans.rule import Draft, Problem
from planner.plans.settings import FlashAttn, LoadMode, Settings, SplitMode


def pinned(problem: Problem, draft: Draft) -> Draft:
    """The draft with every ``--pin`` as the only value of its setting.

    Raises:
        OptionError: an unknown setting or a value of the wrong kind.
    """
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    domains = dict(draft.domains)
    names = [name for name, _ in problem.workload.pins]
    for name, text in problem.workload.pins:
        if names.count(name) > 1 or (name == "n_ctx" and problem.workload.n_ctx not in (None, _parsed(name, text))):
            raise OptionError(f"--pin {name}", expected="one value", found="two that differ")
        if name not in fields:
            near = ", ".join(sorted(fields))
            raise OptionError(f"--pin {name}", expected=f"one of {near}", found=repr(name))
        domains[name] = (_parsed(name, text),)
        _check(problem, name, domains[name][0], text)
    _check_placement(domains)
    return replace(draft, domains=tuple(domains.items()))


def with_kept(problem: Problem, settings: Settings, kept: tuple[tuple[str, str], ...]) -> Settings:
    """Settings with the values that a verified run kept, in the words of ``--pin``; what the user asks for stays.

    Raises:
        OptionError: an unknown setting, or a value that a pin could not have.
    """
    fields = {field.name for field in dataclasses.fields(Settings)}
    values: dict[str, Any] = {}
    for name, text in kept:
        if name not in fields:
            raise OptionError(name, expected="a setting", found="none of that name")
        values[name] = _parsed(name, text)
        _check(problem, name, values[name], text)
    return replace(settings, **{name: value for name, value in values.items() if not _asked(problem, name)})


def _asked(problem: Problem, name: str) -> bool:
    """Whether the user decides a setting, or the size of what is served and where, which no trial changes."""
    kv = problem.workload.kv is not None and name in ("type_k", "type_v")
    return name in ("n_ctx", "n_parallel", "rpc") or kv or problem.pin(name) is not None


_LEAST: Final = {"n_ctx": 1, "n_ubatch": 1, "n_batch": 1, "n_parallel": 1, "threads": 1, "threads_batch": 1}
_LARGEST: Final = 1 << 31


def _check_placement(domains: dict[str, tuple[Any, ...]]) -> None:
    """Layers pinned to devices where none can take part. Raises OptionError."""
    layers = domains.get("n_gpu_layers", (0,))
    if not any(domains.get("devices", ("any",))) and min(layers) > 0:
        expected = "0, as there is no device to put layers on"
        raise OptionError("--pin n_gpu_layers", expected=expected, found=str(min(layers)))


def _check(problem: Problem, name: str, value: Any, text: str) -> None:
    """A value that parses but cannot be.

    Raises:
        OptionError: out of range, an unknown device or type, shares that are none.
    """
    known = [gpu.id for gpu in problem.machine.gpus]
    wanted = {
        "devices": f"none or some of {' '.join(known)}, each once" if known else "none, as no device was found",
        "spec_type": "draft-mtp",
        "type_k": " ".join(BLOCK),
        "type_v": " ".join(BLOCK),
        "tensor_split": "finite shares, at least one above 0",
        "override_tensor": "REGEX=DEVICE",
    }
    if not _possible(name, value, known):
        raise OptionError(
            f"--pin {name}", expected=wanted.get(name, f"{_LEAST.get(name, 0)} to {_LARGEST}"), found=repr(text)
        )
    if name == "override_tensor":
        for pattern, _ in value:
            override_pattern(pattern)


def _possible(name: str, value: Any, known: list[str]) -> bool:
    if name == "devices":
        return set(value) <= set(known) and len(set(value)) == len(value)
    if name == "spec_type":
        return bool(value == "draft-mtp")
    if name in ("type_k", "type_v"):
        return value in BLOCK
    if name == "tensor_split":
        return all(isfinite(share) and share >= 0 for share in value) and any(value)
    if name == "override_tensor":
        return all(len(rule) == 2 for rule in value)
    return not isinstance(value, int) or _LEAST.get(name, 0) <= value <= _LARGEST


_KINDS: Final[dict[str, Any]] = {
    "flash_attn": FlashAttn,
    "load_mode": LoadMode,
    "split_mode": SplitMode,
    "type_k": str,
    "type_v": str,
    "spec_type": str,
    "tensor_split": lambda text: tuple(units.real(share) for share in text.replace("/", ",").split(",")),
    "devices": lambda text: () if text == "none" else tuple(text.split(",")),
    "override_tensor": lambda text: tuple(tuple(rule.rsplit("=", 1)) for rule in text.split(",")),
    "rpc": lambda text: tuple(text.split(",")),
}
_SWITCHES: Final = frozenset({"op_offload", "kv_unified", "swa_full", "kv_offload", "no_host", "repack"})
_WORDS: Final = {
    "1": True,
    "on": True,
    "true": True,
    "yes": True,
    "0": False,
    "off": False,
    "false": False,
    "no": False,
}


_WANTED: Final = {
    "flash_attn": "on, off or auto",
    "load_mode": "one of " + " ".join(LoadMode),
    "split_mode": "one of " + " ".join(SplitMode),
    "tensor_split": "numbers with commas between them",
}


def _parsed(name: str, text: str) -> Any:
    try:
        if name in _SWITCHES:
            return _WORDS[text.lower()]
        return _KINDS.get(name, units.whole)(text)
    except (ValueError, KeyError):
        expected = "on or off" if name in _SWITCHES else _WANTED.get(name, "a whole number")
        raise OptionError(f"--pin {name}", expected=expected, found=repr(text)) from None
