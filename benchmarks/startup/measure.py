"""How long moeplan takes to start and to answer, as ratios that hold on any machine.

Every command runs as a whole process, in turns, so that a slow moment hits all of them alike; the best of the
turns counts. Wall time and peak resident memory are given beside ``python -c pass`` and beside llama.cpp's own
``llama-fit-params`` on the same file.

    python benchmarks/startup/measure.py --layout qwen3-235b-a22b=FILE.gguf --machine MACHINE.json \
        --llama FOLDER [--turns 9] > benchmarks/startup/results.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def once(command: Sequence[str]) -> tuple[float, int]:
    """Wall seconds and peak resident bytes of one process; fails if the command does (1 is a refusal)."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in ((0,) if command[0].endswith("llama-fit-params") else (0, 1)):
        raise SystemExit(f"exit {process.returncode}: {' '.join(command)}")
    return wall, usage.ru_maxrss * 1024


def commands(layouts: dict[str, Path], machine: Path, llama: Path | None) -> dict[str, list[str]]:
    """What is measured, by name; ``python -c pass`` first."""
    moeplan = [sys.executable, "-m", "planner"]
    result = {"python -c pass": [sys.executable, "-c", "pass"], "moeplan --help": [*moeplan, "--help"]}
    for name, path in layouts.items():
        result[f"moeplan --fit {name}"] = [*moeplan, "--fit", str(path), "--machine", str(machine), "--json"]
        result[f"moeplan inspect {name}"] = [*moeplan, "inspect", str(path)]
        if llama:
            program = str(llama / "llama-fit-params")
            flags = ["-c", "4096", "--fit-print", "on", "-fit", "off", "-nr"]
            result[f"llama-fit-params {name}"] = [program, "-m", str(path), *flags]
    return result


def measure(runs: dict[str, list[str]], turns: int) -> list[dict[str, object]]:
    """One row per command: best wall time, its ratio to ``python -c pass``, largest peak."""
    seen: dict[str, list[tuple[float, int]]] = {name: [] for name in runs}
    for _ in range(turns):
        for name, command in runs.items():
            seen[name].append(once(command))
    base = min(wall for wall, _ in seen["python -c pass"])
    rows: list[dict[str, object]] = []
    for name, results in seen.items():
        wall = min(wall for wall, _ in results)
        peak = max(peak for _, peak in results)
        rows.append({"command": name, "wall_s": round(wall, 4), "to_python": round(wall / base, 1), "peak_bytes": peak})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layout", action="append", required=True, metavar="NAME=FILE")
    parser.add_argument("--machine", type=Path, required=True)
    parser.add_argument("--llama", type=Path)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    layouts = {name: Path(path) for name, _, path in (text.partition("=") for text in options.layout)}
    about = {"cpu": _cpu_name(), "cores": os.cpu_count(), "os": platform.system(), "python": sys.version.split()[0]}
    rows = measure(commands(layouts, options.machine, options.llama), options.turns)
    print(json.dumps({"machine": about, "turns": options.turns, "rows": rows}, indent=1))


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


if __name__ == "__main__":
    main()
