"""Times one file on one device: llama.cpp's own ``llama-bench``, or the embedded engine where there is none.

Both answer in the JSON lines of ``llama-bench -o jsonl`` (tools/llama-bench/llama-bench.cpp, b11549).
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass
from typing import Any, Final, Protocol

from planner.facts.machine import Os
from probes import llama_embedded, llama_help
from probes.host import CompletedRun, Host
from probes.layer_fit import Timing
from probes.llama_build import ENVIRONMENT, TIMEOUT_S, complaint
from probes.llama_find import Place
from probes.tied import tied

CPU: Final = "CPU"
ALL: Final = "999"
_NS: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a cut runs: everything on ``device``, its routed experts in host memory if ``host_experts``."""

    device: str
    host_experts: bool = False

    @property
    def words(self) -> str:
        return f"{self.device}, experts in RAM" if self.host_experts else self.device


@dataclass(frozen=True, slots=True)
class Job:
    """What to time: every prompt is one ubatch of so many tokens."""

    path: str
    placement: Placement
    prompts: tuple[int, ...]
    n_gen: int
    repeats: int
    threads: int


class Bench(Protocol):
    """An engine that times files."""

    @property
    def name(self) -> str: ...

    def time(self, job: Job, timeout_s: float) -> Timing | str:
        """The times, or why there are none."""


def find(host: Host, place: Place, rpc: tuple[str, ...]) -> Bench | str:
    """The engine's timer, or why there is none."""
    if place.server is None:
        library = llama_embedded.library(host, place.package or "")
        return EmbeddedBench(host, library) if library else "the llama_cpp package holds no libllama"
    name = "llama-bench.exe" if host.os is Os.WINDOWS else "llama-bench"
    path = posixpath.join(posixpath.dirname(place.server), name)
    if not host.is_file(path):
        return f"no {name} beside the server"
    run = host.run((path, "--help"), TIMEOUT_S, ENVIRONMENT)
    flags = llama_help.parse(run.stdout) or llama_help.parse(run.stderr)
    if "--n-prompt" not in flags:
        return f"{name} --help {complaint(run)}"
    return LlamaBench(host, path, flags, rpc)


@dataclass(frozen=True, slots=True)
class LlamaBench:
    """The program beside ``llama-server``."""

    host: Host
    path: str
    flags: tuple[str, ...]
    rpc: tuple[str, ...]
    name: str = "llama-bench"

    def time(self, job: Job, timeout_s: float) -> Timing | str:
        argv = self.argv(job)
        if isinstance(argv, str):
            return argv
        return parse(self.host.run(tied(self.host, argv), timeout_s, ENVIRONMENT))

    def argv(self, job: Job) -> tuple[str, ...] | str:
        """The command line, or what this build lacks for it."""
        batch = str(max(job.prompts))
        common = (self.path, "-m", job.path, "-o", "jsonl", "-r", str(job.repeats), "-t", str(job.threads))
        sizes = ("-p", ",".join(map(str, job.prompts)), "-n", str(job.n_gen), "-b", batch, "-ub", batch)
        load = ("--load-mode", "none") if "--load-mode" in self.flags else ("-mmp", "0")
        device = job.placement.device
        if device == CPU:
            where: tuple[str, ...] = ("-ngl", "0", *(("-dev", "none") if "--device" in self.flags else ()))
        elif "--device" not in self.flags:
            return "this build of llama-bench cannot choose a device"
        else:
            where = ("-dev", device, "-ngl", ALL)
        if job.placement.host_experts:
            if "--n-cpu-moe" not in self.flags:
                return "this build of llama-bench has no --n-cpu-moe"
            where = (*where, "-ncmoe", ALL)
        remote = ("--rpc", ",".join(self.rpc)) if self.rpc and device.startswith("RPC") else ()
        return (*common, *sizes, *load, *remote, *where)  # a remote device has a name only after --rpc


@dataclass(frozen=True, slots=True)
class EmbeddedBench:
    """libllama of llama-cpp-python, in a process of its own."""

    host: Host
    library: str
    name: str = "llama-cpp-python"

    def time(self, job: Job, timeout_s: float) -> Timing | str:
        spec = {
            "model": job.path,
            "device": None if job.placement.device == CPU else job.placement.device,
            "host_experts": job.placement.host_experts,
            "prompts": job.prompts,
            "n_gen": job.n_gen,
            "repeats": job.repeats,
            "threads": job.threads,
        }
        return parse(self.host.run_script("script_layer.py", (self.library, json.dumps(spec)), timeout_s))


def parse(run: CompletedRun) -> Timing | str:
    """Lines ``{"n_prompt", "n_gen", "samples_ns"}`` → times; anything else is passed over.

    A run that did not end well is believed in nothing.
    """
    if run.returncode != 0:
        return complaint(run)
    decode: tuple[float, ...] = ()
    prefill: dict[int, tuple[float, ...]] = {}
    for text in run.stdout.splitlines():
        row = _row(text)
        if row is None:
            continue
        n_prompt, n_gen, seconds = row
        if n_gen and not n_prompt:
            decode = tuple(s / n_gen for s in seconds)
        elif n_prompt and not n_gen:
            prefill[n_prompt] = seconds
    return Timing(decode, prefill) if decode or prefill else f"no times in its answer: {complaint(run)}"


def _row(text: str) -> tuple[int, int, tuple[float, ...]] | None:
    try:
        data: Any = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    n_prompt, n_gen, samples = data.get("n_prompt"), data.get("n_gen"), data.get("samples_ns")
    if type(n_prompt) is not int or type(n_gen) is not int or not isinstance(samples, list):
        return None
    if not samples or not all(type(s) in (int, float) and 0 < s < 1e13 for s in samples):
        return None
    return n_prompt, n_gen, tuple(s * _NS for s in samples)
