"""Whether a plan can be started on this computer, and the user's own arguments for the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.errors import EMBEDDED, EngineError, OptionError, PlanFileError
from planner.facts.workload import Target, Workload
from planner.files import text_of
from planner.verification.looking import LEAST_SLOT, MANY, slot_tokens

if TYPE_CHECKING:
    from emit.flags import ParsedFlags
    from planner.plans.plan import Plan


def check_request(machine_file: str | None, workload: Workload) -> None:
    """Raises OptionError for what nothing can be started with."""
    if machine_file is not None:
        raise OptionError("--machine", expected="this machine", found="a recorded one: nothing can be started on it")
    if workload.target_build is not None or workload.target is not Target.LLAMA_CPP:
        raise OptionError("--target", expected="the llama.cpp that is here", found="flags for another engine or build")


def check_plan(plan: Plan) -> None:
    """A refused plan passes: there is nothing to start, and it says why.

    Raises:
        EngineError: no llama.cpp was found.
        OptionError: the model is not on this computer, or the context holds no question with its answer.
    """
    if plan.refusal is not None:
        return
    slot = slot_tokens(plan.chosen.settings)
    if slot < LEAST_SLOT:
        raise OptionError(
            "--ctx",
            expected=f"at least {LEAST_SLOT} tokens per slot, for a question and its answer",
            found=f"{slot:,} ({plan.chosen.settings.n_ctx:,} for {plan.chosen.settings.n_parallel} at once)",
        )
    if "://" in plan.model.path:
        raise OptionError(plan.model.path, expected="a file on this computer", found="an address: download it first")
    if plan.machine.engine is None:
        told = next((report.reason for report in plan.machine.probes if report.name == "engine"), "")
        raise _no_engine(told or "none")


def check_engine(llama: str | None, note: Callable[[str], None]) -> None:
    """Look for the engine, before anything is measured.

    Args:
        llama: folder or program that the user named.
        note: is told if what was found will not go on serving.

    Raises:
        EngineError: there is no llama.cpp.
    """
    from probes.host import LocalHost
    from probes.llama_find import find

    place = find(LocalHost(), llama)
    if place is None:
        raise _no_engine("none")
    if place.server is None:
        note("only the embedded engine is here: it verifies the plan, and will not go on serving (--llama)")


def _no_engine(found: str) -> EngineError:
    advice = f"name its folder with --llama, or {EMBEDDED}"
    return EngineError("llama.cpp", expected="a llama-server to start", found=found, advice=advice)


LONGEST_TOKEN: Final = 256
"""Bytes of a token at most: vocabularies have blanks of up to 128."""


def check_prompt(plan: Plan, prompt: str | None) -> None:
    """Raises OptionError for a prompt that no tokenizer brings into a slot; the engine counts what is shorter."""
    slot = min(slot_tokens(plan.chosen.settings), plan.model.n_ctx_train or MANY)
    size = len((prompt or "").encode("utf-8"))
    if size > LONGEST_TOKEN * slot:
        raise OptionError("--prompt", expected=f"what fits a slot of {slot:,} tokens", found=f"{size:,} bytes")


def check_command(origin: str, parsed: ParsedFlags, rpc: tuple[str, ...]) -> None:
    """A plan's file may come from anywhere, so its command starts nothing but what a plan decides.

    Args:
        origin: the file.
        rpc: servers of remote devices that the user names.

    Raises:
        PlanFileError: no flags, a flag that no plan has, or a remote device that the user does not name.
    """
    from emit.flags import setting_of

    if not parsed.given:
        raise PlanFileError(origin, expected="the flags of a command in argv", found="none")
    for flag, _ in parsed.given:
        if setting_of(flag) is None:
            advice = f"flags of your own come after it: run PLAN.json -- {flag}"
            raise PlanFileError(origin, expected="flags that a plan decides", found=repr(flag), advice=advice)
    for server in parsed.settings.rpc:
        if server not in rpc:
            advice = f"if you trust it: --rpc {server}"
            raise PlanFileError(origin, expected="devices of yours", found=f"a remote one at {server}", advice=advice)


@dataclass(frozen=True, slots=True)
class Own:
    """A user's own arguments for llama-server.

    Args:
        port: where to serve; None is the plan's to serve at, and any free one to verify at.
        api_key: what the server will ask for, of ``more`` or of its environment.
        more: all but the port.
    """

    port: int | None = None
    api_key: str | None = None
    more: tuple[str, ...] = ()


_MODEL: Final = frozenset(
    {"-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-dr", "--docker-repo", "--models-dir", "--models-preset"}
)
"""What would serve another model than the plan's; presets of models end in ``-default``."""
_PLAIN: Final = frozenset({"--api-prefix", "--ssl-key-file", "--ssl-cert-file"})
"""What would move the server away from where it is asked: plain HTTP at the root."""


KEY_VARIABLE: Final = "LLAMA_API_KEY"
"""Keys for a server that has none of its own arguments; those of arguments and file count beside them (b11549)."""


def own_arguments(tokens: tuple[str, ...], known_key: str | None = None) -> Own:
    """The user's arguments taken apart.

    Args:
        known_key: what ``LLAMA_API_KEY`` holds.

    Raises:
        OptionError: an argument that the plan decides, another model, another address than this computer's, no port,
            an argument without its value, or a key that no header can carry.
    """
    from emit.flag_words import OTHER_ARITY
    from emit.flags import normal, setting_of
    from planner.plans.settings import Tool

    port, keys, rest = None, list[tuple[str, str]](), list[str]()
    left = list(tokens)
    while left:
        token = left.pop(0)
        name, equals, value = normal(token).partition("=") if token.startswith("--") else (token, "", "")
        setting = setting_of(name) if token.startswith("-") else None
        if setting == "port":
            port = _port(value if equals else left.pop(0) if left else "")
            continue
        if name in _MODEL or (name.endswith("-default") and name != "--spec-default"):
            raise OptionError(token, expected="the model of the plan", found="another one")
        if setting == "host" or name in _PLAIN:
            raise OptionError(token, expected="plain HTTP on this computer alone", found="another way to be reached")
        if setting is not None:
            found = "an argument that the plan decides"
            raise OptionError(token, found=found, advice=f"--pin {name.lstrip('-')}=VALUE fixes it")
        values = [] if equals else left[: OTHER_ARITY[Tool.SERVER].get(name, 0)]
        if not equals and len(values) < OTHER_ARITY[Tool.SERVER].get(name, 0):
            raise OptionError(token, expected="a value", found="nothing after it")
        del left[: len(values)]
        if name in ("--api-key", "--api-key-file"):
            keys.append((name, value if equals else values[0]))
        rest += [token, *values]
    if known_key:
        keys.append((KEY_VARIABLE, known_key))
    return Own(port, _key(*keys[0]) if keys else None, tuple(rest))


def _key(origin: str, text: str) -> str:
    """The first of the keys that a header can carry: any of them will do. Never part of a message."""
    found = text.split(",")
    if origin == "--api-key-file":
        found = [line for line in text_of(text, OptionError).splitlines() if not line.startswith("#")]
    for key in found:
        if key and not key.startswith("-") and key.isascii() and key.isprintable() and " " not in key:
            return key
    raise OptionError(origin, expected="a key of ASCII characters without blanks", found="none")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536):
        raise OptionError("--port", expected="1 to 65535", found=repr(text))
    return int(text)
