"""The same question as ``measure.py``, all three files in one process: ``python benchmarks/layers/alternate.py MODEL…``

On a machine that others use, seconds between two starts are enough for its speed to change. Here the embedded engine
(llama-cpp-python) holds the shallow cut, the deep cut and the whole model, and they take turns token by token and
batch by batch (A B W W B A). Medians over all turns of a run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from planner.cost.layer_blocks import blocks_of
from planner.gguf.analyze import analyze
from planner.gguf.cut import Active, choose
from planner.gguf.cut_file import Cutter
from planner.gguf.cut_folder import base_folder, cut_folder
from planner.units import GIB
from probes.script_layer import Runner, load

ORDER = ("shallow", "deep", "whole", "whole", "deep", "shallow")


def turns(runners: dict[str, Runner], tokens: int, rounds: int) -> dict[str, float]:
    """Median seconds of a batch per file; the first turn of each warms up."""
    samples: dict[str, list[float]] = {name: [] for name in runners}
    for round_no in range(rounds + 1):
        for name in ORDER:
            runners[name].forget()
            start = time.perf_counter()
            runners[name].prompt(tokens)
            samples[name] += [time.perf_counter() - start] if round_no else []
    return {name: statistics.median(found) for name, found in samples.items()}


def compared(seconds: dict[str, float], n_layers: int, beyond: float) -> dict[str, float]:
    layer = (seconds["deep"] - seconds["shallow"]) / n_layers
    predicted = seconds["shallow"] + beyond * layer
    return {
        "layer_s": layer,
        "predicted_s": predicted,
        "measured_s": seconds["whole"],
        "ratio": round(predicted / seconds["whole"], 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=32)
    options = parser.parse_args()
    import llama_cpp as lc

    lc.llama_backend_init()
    silent = lc.llama_log_callback(lambda *_: None)  # must outlive every call
    lc.llama_log_set(silent, None)
    for path in options.models:
        model = analyze(path)
        active = [Active(b.dense_bytes, round(b.expert_bytes * b.used)) for b in blocks_of(model)]
        pair = choose(model, active, 16 * GIB)
        beyond = sum(a.total for a in active[pair.shallow :]) / (pair.read_bytes / pair.n_layers)
        job: dict[str, Any] = {"device": None, "host_experts": False, "prompts": [options.prompt], "n_gen": 8}
        job |= {"repeats": 1, "threads": options.threads}
        with cut_folder(base_folder()) as folder:
            cutter, paths = Cutter(model), {"whole": path}
            for name, depth in (("shallow", pair.shallow), ("deep", pair.deep)):
                paths[name] = f"{folder}/{name}.gguf"
                cutter.write(depth, paths[name])
            runners = {}
            for name, file in paths.items():
                runners[name] = Runner(lc, load(lc, "", {**job, "model": file}), job)
        for run in range(options.runs):
            decode, prefill = turns(runners, 1, 24), turns(runners, options.prompt, 4)
            row = {
                "model": Path(path).stem,
                "layers": len(active),
                "shallow": pair.shallow,
                "deep": pair.deep,
                "threads": options.threads,
                "prompt": options.prompt,
                "run": run,
                "decode": compared(decode, pair.n_layers, beyond),
                "prefill": compared(prefill, pair.n_layers, beyond),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
