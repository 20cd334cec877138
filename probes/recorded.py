"""A saved machine that answers like a live one: the twin of ``LocalHost`` for tests and bug reports.

A folder holds ``host.json`` and the files of the machine under their own paths (``proc/meminfo``, ``sys/…``).
``host.json``: ``about`` (what the machine is), ``os``, ``env``, ``which`` (program → path), ``packages``, and
``commands``: a list of ``{"argv", "stdout", "stderr", "returncode", "problem"}``.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping
from typing import Any

from planner.facts.machine import Os
from probes.commands import Heard, Started
from probes.host import CompletedRun


class RecordedHost:
    """The machine saved in ``root``.

    Args:
        libraries: stand-ins for ``psutil``, ``pynvml`` or ``cpuinfo`` by name.
        env: variables on top of the saved ones.
    """

    python = "python3"

    def __init__(
        self,
        root: str,
        libraries: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        with open(os.path.join(root, "host.json"), encoding="utf-8") as file:
            saved = json.load(file)
        self._root = root
        self._saved: dict[str, dict[str, str]] = {name: saved.get(name, {}) for name in ("env", "which", "packages")}
        self._env = {**self._saved["env"], **(env or {})}
        self._runs = {tuple(c["argv"]): _completed(c) for c in saved.get("commands", ())}
        self._libraries = dict(libraries or {})
        self._kept: dict[str, str] = {}
        self.os = Os(saved["os"])

    def _at(self, path: str) -> str:
        return os.path.join(self._root, path.lstrip("/"))

    def read_text(self, path: str) -> str | None:
        try:
            with open(self._at(path), "rb") as file:
                return file.read().decode("utf-8", "replace")
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        return os.path.exists(self._at(path))

    def is_file(self, path: str) -> bool:
        return os.path.isfile(self._at(path))

    def glob(self, pattern: str) -> tuple[str, ...]:
        found = glob.glob(pattern.lstrip("/"), root_dir=self._root)
        return tuple(sorted("/" + path.replace(os.sep, "/") for path in found))

    def real_path(self, path: str) -> str:
        return path

    def stamp(self, path: str) -> tuple[int, int] | None:
        return (os.path.getsize(self._at(path)), 0) if self.is_file(path) else None

    def env(self, name: str) -> str | None:
        return self._env.get(name)

    def which(self, program: str) -> str | None:
        return self._saved["which"].get(program)

    def package(self, name: str) -> str | None:
        return self._saved["packages"].get(name)

    def library(self, name: str) -> Any | None:
        return self._libraries.get(name)

    def run(
        self,
        argv: tuple[str, ...],
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        heard: Heard | None = None,
    ) -> CompletedRun:
        return self._runs.get(argv, CompletedRun(None, problem="not recorded"))

    def run_script(
        self, script: str, arguments: tuple[str, ...], timeout_s: float, heard: Heard | None = None
    ) -> CompletedRun:
        return self._runs.get((script, *arguments), CompletedRun(None, problem="not recorded"))

    def start(self, argv: tuple[str, ...], env: Mapping[str, str] | None = None) -> Started | str:
        return "not recorded"

    def cached(self, key: str) -> str | None:
        return self._kept.get(key)

    def keep(self, key: str, text: str) -> str:
        self._kept[key] = text
        return ""

    def clock(self) -> float:
        return 0.0


def _completed(command: Mapping[str, Any]) -> CompletedRun:
    return CompletedRun(
        command.get("returncode", 0),
        command.get("stdout", ""),
        command.get("stderr", ""),
        command.get("problem", ""),
    )
