"""Does the difference of two cuts predict the whole model? ``python benchmarks/layers/measure.py MODEL… > rows.jsonl``

One run is six starts of llama-bench in the order shallow, deep, whole, whole, deep, shallow, five short repeats each.
Other work on the machine only adds time, so the fastest of a file's ten repeats counts, all within one run.
Predicted = shallow + (blocks beyond it, weighed by the bytes a token reads) x layer.
Needs ``MOEPLAN_LLAMA``. Models of about 4 GB are cut and run in about a minute per run on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from planner.cost.layer_blocks import blocks_of
from planner.facts.layer_cut import CutPair
from planner.gguf.analyze import analyze
from planner.gguf.cut import Active, choose
from planner.gguf.cut_file import Cutter
from planner.gguf.cut_folder import base_folder, cut_folder
from planner.units import GIB
from probes import bench_engine, llama_find
from probes.bench_engine import Job, Placement
from probes.host import LocalHost
from probes.layer_fit import Timing, difference

ORDER = ("shallow", "deep", "whole", "whole", "deep", "shallow")
Samples = dict[str, list[tuple[float, ...]]]


def one_run(bench: bench_engine.Bench, jobs: dict[str, Job]) -> tuple[Samples, Samples]:
    """(decode, prefill) samples by file, in the order taken."""
    decode: Samples = {name: [] for name in jobs}
    prefill: Samples = {name: [] for name in jobs}
    for name in ORDER:
        timing = bench.time(jobs[name], 600)
        if not isinstance(timing, Timing):
            raise SystemExit(f"{name}: {timing}")
        decode[name].append(timing.decode_s)
        prefill[name].append(timing.prefill_s[jobs[name].prompts[0]])
    return decode, prefill


def compared(samples: Samples, pair: CutPair, beyond: float) -> dict[str, float]:
    """Predicted and measured seconds of the whole, and their ratio; ``beyond`` in mean layers of the difference."""
    fastest = {name: (min(s for run in runs for s in run),) for name, runs in samples.items()}
    layer = difference([fastest["shallow"]], [fastest["deep"]], pair.n_layers)
    (shallow,), (whole,) = fastest["shallow"], fastest["whole"]
    predicted = shallow + beyond * layer.value if layer else float("nan")
    return {
        "layer_s": layer.value if layer else float("nan"),
        "shallow_s": shallow,
        "predicted_s": predicted,
        "measured_s": whole,
        "ratio": round(predicted / whole, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--rpc", default="", help="HOST:PORT of a server, which is the device RPC0")
    parser.add_argument("--device", default=bench_engine.CPU, help="CPU, RPC0, CUDA0, …")
    options = parser.parse_args()
    host = LocalHost()
    rpc = (options.rpc,) if options.rpc else ()
    place = llama_find.find(host, None)
    bench = bench_engine.find(host, place, rpc) if place else "no llama.cpp"
    if isinstance(bench, str):
        raise SystemExit(bench)
    where = Placement(options.device)
    for path in options.models:
        model = analyze(path)
        active = [Active(b.dense_bytes, round(b.expert_bytes * b.used)) for b in blocks_of(model)]
        pair = choose(model, active, 16 * GIB)
        beyond = sum(a.total for a in active[pair.shallow :]) / (pair.read_bytes / pair.n_layers)
        with cut_folder(base_folder()) as folder:
            pair = replace(pair, shallow_path=f"{folder}/shallow.gguf", deep_path=f"{folder}/deep.gguf")
            cutter = Cutter(model)
            cutter.write(pair.shallow, pair.shallow_path)
            cutter.write(pair.deep, pair.deep_path)
            paths = {"shallow": pair.shallow_path, "deep": pair.deep_path, "whole": path}
            jobs = {n: Job(p, where, (options.prompt,), 16, 5, options.threads) for n, p in paths.items()}
            for run in range(options.runs):
                decode, prefill = one_run(bench, jobs)
                row = {
                    "model": Path(path).stem,
                    "layers": len(active),
                    "shallow": pair.shallow,
                    "deep": pair.deep,
                    "device": where.device,
                    "threads": options.threads,
                    "prompt": options.prompt,
                    "run": run,
                    "decode": compared(decode, pair, beyond),
                    "prefill": compared(prefill, pair, beyond),
                }
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
