"""Devices as llama.cpp names and counts them (``--list-devices``).

Its figures are MiB. "free" of a CUDA device on WDDM is a fixed budget; where a driver's own figures exist,
``assemble`` prefers them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from planner.errors import EngineError
from planner.facts.machine import Backend
from planner.units import MIB
from probes import llama_cache, llama_embedded
from probes.host import Host
from probes.llama_build import ENVIRONMENT, TIMEOUT_S, Build, complaint
from probes.probe import Absent, Failed, Found, Outcome, Request, Seen, value
from probes.text import clean

_LINE: Final = re.compile(r"^\s+([A-Za-z0-9_.:\[\]-]{1,64}): (.*) \((\d{1,10}) MiB, (\d{1,10}) MiB free\)\s*$")
_BACKENDS: Final = {
    "CUDA": Backend.CUDA, "ROCM": Backend.ROCM, "VULKAN": Backend.VULKAN, "MTL": Backend.METAL,
    "METAL": Backend.METAL, "SYCL": Backend.SYCL, "RPC": Backend.RPC,
}  # fmt: skip
_SELECTIONS: Final = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "GGML_VK_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Listed:
    """One device of the engine. ``free_bytes`` is None if the answer is an older one; 0 total: not reported."""

    id: str
    name: str
    total_bytes: int
    free_bytes: int | None

    @property
    def backend(self) -> Backend | None:
        letters = re.match(r"[A-Za-z]+", self.id)
        return _BACKENDS.get(letters[0].upper()) if letters else None


def read(host: Host, request: Request, seen: Seen) -> Outcome[tuple[Listed, ...]]:
    """Names may come from an earlier run while the drivers list the same devices; figures never do.

    Raises:
        EngineError: a remote device that the user named cannot be reached.
    """
    build: Build | None = value(seen, "engine")
    if build is None:
        return Absent("no engine to ask")
    if not build.offloads:
        return Absent("the engine is built for the CPU alone")
    keys = [gpu.key for probe in ("nvidia", "amd") for gpu in value(seen, probe) or ()]
    key = None
    if keys and build.key and not request.rpc:
        state = (*(f"{name}={host.env(name)}" for name in _SELECTIONS), *keys)
        anchor = host.real_path(build.place.server or build.place.package or "")
        key = llama_cache.key(host, anchor, build.key, *state)
        known = parse_kept(llama_cache.load(host, key))
        if known:
            return Found(known, "names from an earlier run")
    problem, text = _ask(host, build, request.rpc)
    if problem and request.rpc:
        raise EngineError("--rpc " + clean(",".join(request.rpc)), expected="a reachable server", found=problem)
    if problem:
        return Failed(problem)
    listed = parse(text)
    llama_cache.store(host, key, {"devices": [[d.id, d.name, d.total_bytes] for d in listed]})
    return Found(listed) if listed else Absent("the engine sees no device beside the CPU")


def _ask(host: Host, build: Build, rpc: tuple[str, ...]) -> tuple[str, str]:
    if build.place.server is None:
        library = llama_embedded.library(host, build.place.package or "") or ""
        problem, data = llama_embedded.ask(host, library)
        lines = data.get("devices")
        return problem, "\n".join(map(str, lines)) if isinstance(lines, list) else ""
    remote = ("--rpc", ",".join(rpc)) if rpc else ()
    run = host.run((build.place.server, *remote, "--list-devices"), 2 * TIMEOUT_S, ENVIRONMENT)
    if run.returncode != 0:
        return f"--list-devices {complaint(run)}", ""
    return "", run.stdout


def parse(text: str) -> tuple[Listed, ...]:
    """Lines ``  ID: NAME (N MiB, N MiB free)``; others are log output.

    Source: common/arg.cpp ``common_print_available_devices`` of b11312.
    """
    matches = (match for line in text.splitlines() if (match := _LINE.match(line)))
    found = {m[1]: Listed(m[1], clean(m[2]), int(m[3]) * MIB, int(m[4]) * MIB) for m in matches}
    return tuple(found.values())


def parse_kept(data: dict[str, Any] | None) -> tuple[Listed, ...]:
    """Rows ``[id, name, total]`` of an earlier run; nothing if they make no sense."""
    rows = data.get("devices") if data else None
    if not isinstance(rows, list):
        return ()
    sound = all(isinstance(row, list) and [type(item) for item in row] == [str, str, int] for row in rows)
    return tuple(Listed(row[0], row[1], row[2], None) for row in rows) if sound else ()
