"""The llama.cpp that would run: its build and the options it accepts (``--version``, ``--help``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from planner.errors import EngineError
from planner.facts.machine import Engine
from probes import llama_cache, llama_embedded, llama_find, llama_help, llama_version
from probes.host import CompletedRun, Host
from probes.probe import Absent, Failed, Found, Outcome, Request, Seen
from probes.text import clean

TIMEOUT_S: Final = 15.0
ENVIRONMENT: Final = {"GGML_NO_BACKTRACE": "1"}
"""An aborting llama.cpp starts a debugger on itself unless told not to (ggml/src/ggml.c, b11312)."""


@dataclass(frozen=True, slots=True)
class Build:
    """An engine and how to ask it more; backends and KV pairs are filled in once its devices are known.

    Args:
        key: name of its kept answers; None if nothing can be kept.
        offloads: False if it was built without any device beside the CPU.
    """

    engine: Engine
    place: llama_find.Place
    key: str | None
    offloads: bool = True


def read(host: Host, request: Request, _seen: Seen) -> Outcome[Build]:
    """Compare with ``llama-server --version``.

    Raises:
        EngineError: the engine that the user named is missing or does not answer as llama.cpp.
    """
    place = llama_find.find(host, request.llama)
    if place is None:
        return Absent("no llama.cpp: not on PATH, and $MOEPLAN_LLAMA is not set")
    if place.server is None:
        return _embedded(host, place)
    key = llama_cache.key(host, host.real_path(place.server), "engine")
    data = llama_cache.load(host, key)
    if data is None or not _sound(data):
        problem, data = _ask(host, place.server)
        if problem:
            return _refuse(place, problem)
        llama_cache.store(host, key, data)
    engine = Engine(kind=str(data["kind"]), build=data["build"], flags=tuple(data["flags"]), server=place.server)
    return Found(Build(engine, place, key))


def _ask(host: Host, server: str) -> tuple[str, dict[str, Any]]:
    """Why it is no usable llama.cpp (or nothing), and its answers."""
    version = host.run((server, "--version"), TIMEOUT_S, ENVIRONMENT)
    said = version.stdout + version.stderr
    if not llama_version.answers(said):
        return f"--version {complaint(version)}", {}
    help_run = host.run((server, "--help"), TIMEOUT_S, ENVIRONMENT)
    flags = llama_help.parse(help_run.stdout) or llama_help.parse(help_run.stderr)
    if "--model" not in flags:
        return f"--help lists no --model option: {complaint(help_run)}", {}
    ik = llama_help.is_ik(flags)
    kind = "ik_llama.cpp" if ik else "llama.cpp"
    return "", {"kind": kind, "build": None if ik else llama_version.parse(said), "flags": list(flags)}


def complaint(run: CompletedRun) -> str:
    """What a run that went wrong had to say, in one line."""
    words = clean((run.stderr.strip() or run.stdout.strip())[-300:])
    return run.problem or f"ended with status {run.returncode} and said: {words or 'nothing'}"


def _sound(data: dict[str, Any]) -> bool:
    build, flags = data.get("build"), data.get("flags")
    return (
        isinstance(data.get("kind"), str)
        and (build is None or isinstance(build, int))
        and isinstance(flags, list)
        and "--model" in flags
        and all(isinstance(flag, str) for flag in flags)
    )


def _refuse(place: llama_find.Place, problem: str) -> Failed:
    if place.named:
        advice = ""
        if "shared librar" in problem:
            advice = "set LD_LIBRARY_PATH to the folder of its libraries"
        raise EngineError(
            f"{place.named} {clean(place.server or '', 300)}",
            expected="a llama.cpp server",
            found=problem,
            advice=advice,
        )
    return Failed(f"{clean(place.server or '')}: {problem}")


def _embedded(host: Host, place: llama_find.Place) -> Outcome[Build]:
    library = llama_embedded.library(host, place.package or "")
    if library is None:
        return Failed("the llama_cpp package holds no libllama")
    key = llama_cache.key(host, library, "embedded", host.python)
    data = llama_cache.load(host, key)
    if data is None or "gpu" not in data:
        problem, data = llama_embedded.ask(host, library)
        if problem:
            return Failed(f"llama-cpp-python: {problem}")
        llama_cache.store(host, key, {name: data.get(name) for name in ("build", "gpu")})
    build = data.get("build")
    number = llama_version.real(build if isinstance(build, int) else None)
    return Found(Build(Engine("llama-cpp-python", number), place, key, offloads=data.get("gpu") is not False))
