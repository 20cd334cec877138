"""Where llama.cpp is: the path the user named, ``$MOEPLAN_LLAMA``, PATH, then the Python package."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Final

from planner.errors import EngineError
from planner.facts.machine import Os
from probes.host import Host

VARIABLE: Final = "MOEPLAN_LLAMA"
_FOLDERS: Final = ("", "bin", "build/bin", "build/bin/Release")
"""Where a release archive, an installation and a CMake build keep their programs."""


@dataclass(frozen=True, slots=True)
class Place:
    """A llama-server, or the folder of an installed ``llama_cpp`` package.

    Args:
        named: what named it (an option or a variable); empty if it was only found.
    """

    server: str | None = None
    package: str | None = None
    named: str = ""


def find(host: Host, llama: str | None) -> Place | None:
    """The first llama.cpp in the order above; None if there is none.

    Raises:
        EngineError: one was named and is not there. It is never replaced by another.
    """
    asked = ((llama, "--llama"), (host.env(VARIABLE), f"${VARIABLE}"))
    for path, named in asked:
        if path:
            return Place(server=_server_at(host, path, named), named=named)
    on_path = host.which("llama-server")
    if on_path is not None:
        return Place(server=on_path)
    package = host.package("llama_cpp")
    return Place(package=package) if package is not None else None


def _server_at(host: Host, path: str, named: str) -> str:
    path = host.real_path(path)
    program = "llama-server.exe" if host.os is Os.WINDOWS else "llama-server"
    candidates = tuple(posixpath.join(path, folder, program) for folder in _FOLDERS)
    beside = posixpath.join(posixpath.dirname(path), program)
    for candidate in (*candidates, beside, path):
        if host.is_file(candidate):
            return candidate
    found = "a folder without it" if host.exists(path) else "nothing there"
    raise EngineError(
        f"{named} {path}",
        expected=f"{program} or a folder that holds it",
        found=found,
        advice="name the folder of a llama.cpp release or build",
    )
