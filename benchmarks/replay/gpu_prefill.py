"""Replay prompts computed wholly on GPUs: ``python benchmarks/replay/gpu_prefill.py --models FOLDER``.

``gpu-prefill.jsonl`` holds figures of llama-bench from pull requests and pages that measure kernels, and our own of an
H200. ``FOLDER`` holds the layouts as ``MODEL.gguf`` (headers suffice). Multiplies, attention and the time between
multiplies are all that such a prompt takes: these rows and the published ones (``public.py``) are what
``EXPERT_SHARE`` and ``EXPERT_HALF_TOKENS`` were set with.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

from planner.cost.evaluate import Evaluator
from planner.cost.known_gpus import known_gpu
from planner.cost.model import CostModel
from planner.facts.machine import Backend, Cpu, Gpu, Machine, Os, Ram
from planner.facts.model import Model
from planner.facts.workload import Workload
from planner.gguf.analyze import analyze
from planner.plans.settings import FlashAttn, Settings, Tool
from planner.units import GIB

ROWS = Path(__file__).parent / "gpu-prefill.jsonl"
TOTAL = 256 * GIB
"""Memory of every card here: enough, since only speed is asked for."""


def machine_of(names: list[str]) -> Machine:
    gpus = []
    for i, name in enumerate(names):
        known = known_gpu(name, TOTAL)
        assert known is not None, name
        backend = Backend.ROCM if "AMD" in name else Backend.CUDA
        gpus.append(Gpu(id=f"GPU{i}", name=name, total_bytes=TOTAL, used_bytes=0, backend=backend))
    return Machine(os=Os.LINUX, cpu=Cpu(physical_cores=16), ram=Ram(TOTAL), gpus=tuple(gpus))


def predicted(row: dict[str, Any], model: Model) -> float:
    """Tokens per second of a prompt behind ``depth`` others: the time of both less that of the depth alone."""
    machine = machine_of(row["gpus"])
    prompt, depth = int(row["n_prompt"]), int(row["depth"])
    settings = Settings(
        devices=tuple(gpu.id for gpu in machine.gpus),
        n_gpu_layers=model.n_layer + 1,
        n_ctx=prompt + depth,
        n_ubatch=row["ubatch"],
        flash_attn=FlashAttn.ON,
        type_k="f16",
        type_v="f16",
    )
    cost = CostModel(model, machine, Tool.BENCH)

    def seconds(tokens: int) -> float:
        work = Workload(prompt_tokens=tokens, answer_tokens=1)
        return tokens / Evaluator(cost, work).bound(settings, ()).speed.prefill_tps.mid if tokens else 0.0

    return prompt / (seconds(prompt + depth) - seconds(depth))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    args = parser.parse_args()
    ratios: list[float] = []
    models: dict[str, Model] = {}
    for line in ROWS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        name = row["model"]
        models[name] = models.get(name) or analyze(str(args.models / f"{name}.gguf"))
        found = predicted(row, models[name])
        ratios.append(found / row["pp_tps"])
        where = f"{len(row['gpus'])} x {row['gpus'][0]}"
        print(
            f"{where:26s} {name:20s} ubatch {row['ubatch']:5d} at {row['depth']:6d}"
            f" {found:8.0f} of {row['pp_tps']:8.0f} {ratios[-1]:5.2f}  {row['source']}"
        )
    near = sum(abs(ratio - 1.0) <= 0.25 for ratio in ratios)
    print(
        f"{len(ratios)} rows, median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}, {near} within 25 %"
    )


if __name__ == "__main__":
    main()
