"""Whether a plan can be started on this computer, and the user's own arguments for the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.errors import EngineError, OptionError

if TYPE_CHECKING:
    from planner.plans.plan import Plan


def check_request(machine_file: str | None, target_build: int | None) -> None:
    """Raises OptionError for what nothing can be started with."""
    if machine_file is not None:
        raise OptionError("--machine", expected="this machine", found="a recorded one: nothing can be started on it")
    if target_build is not None:
        raise OptionError("--target", expected="the llama.cpp that is here", found="flags for another build")


def check_plan(plan: Plan) -> None:
    """A refused plan passes: there is nothing to start, and it says why.

    Raises:
        EngineError: no llama.cpp was found.
        OptionError: the model is not on this computer.
    """
    if "://" in plan.model.path:
        raise OptionError(plan.model.path, expected="a file on this computer", found="an address: download it first")
    if plan.machine.engine is None:
        raise EngineError(
            "llama.cpp",
            expected="a llama-server to start",
            found="none",
            advice="name its folder with --llama, or install moeplan[embedded]",
        )


def own_arguments(tokens: tuple[str, ...]) -> tuple[int | None, tuple[str, ...]]:
    """The port to serve at (None: a free one) and the rest of the user's arguments for llama-server.

    Raises:
        OptionError: an argument that the plan decides, another address than this computer's, or no port.
    """
    from emit.flags import normal, setting_of

    port, rest = None, []
    left = list(tokens)
    while left:
        token = left.pop(0)
        name, equals, value = normal(token).partition("=") if token.startswith("--") else (token, "", "")
        setting = setting_of(name)
        if setting is None or not token.startswith("-"):
            rest.append(token)
            continue
        if setting != "port":
            found = "an argument that the plan decides"
            raise OptionError(token, found=found, advice=f"--pin {name.lstrip('-')}=VALUE fixes it")
        port = _port(value if equals else left.pop(0) if left else "")
    return port, tuple(rest)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536):
        raise OptionError("--port", expected="1 to 65535", found=repr(text))
    return int(text)
