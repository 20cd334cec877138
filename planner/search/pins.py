"""``--pin SETTING=VALUE``: values the planner may not change."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any, Final

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
    for name, text in problem.workload.pins:
        if name not in fields:
            near = ", ".join(sorted(fields))
            raise OptionError(f"--pin {name}", expected=f"one of {near}", found=repr(name))
        domains[name] = (_parsed(name, text),)
    return replace(draft, domains=tuple(domains.items()))


_KINDS: Final[dict[str, Any]] = {
    "flash_attn": FlashAttn,
    "load_mode": LoadMode,
    "split_mode": SplitMode,
    "type_k": str,
    "type_v": str,
    "spec_type": str,
    "tensor_split": lambda text: tuple(float(share) for share in text.replace("/", ",").split(",")),
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
        return _KINDS.get(name, int)(text)
    except (ValueError, KeyError):
        expected = "on or off" if name in _SWITCHES else _WANTED.get(name, "a whole number")
        raise OptionError(f"--pin {name}", expected=expected, found=repr(text)) from None
