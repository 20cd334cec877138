"""Decode with llama.cpp's expert pool at several sizes, on models with real routing.

    LD_LIBRARY_PATH=LLAMA python3 benchmarks/pool/measure.py --llama LLAMA --dense SmolLM2.gguf --out FOLDER

``LLAMA`` is a folder of CUDA programs of a build that lists ``--moe-cache-mib``. Needs torch (the ballast that makes a
small card, and the links) and numpy, nothing else. It writes the mixtures (22 GB), records their routing with the
same libllama, times their layers, and starts llama-server once per point, the most telling ones first: pools of 0,
1/16, 1/8, 1/4 and 1/2 of the expert bytes with all experts in RAM, what moeplan plans for two sizes of the card, whole
layers of a quarter of the bytes, the best of all again (its difference is the noise), and two pools with greedy answers
(their hit rate beside that of sampled ones; llama.cpp tells it at exit only). Three answers each to real text; the
first fills the pool. Rows go to ``FOLDER/rows.jsonl``, recordings beside it; ``compare.py`` reads both.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from pool_common import ANSWER, PROMPT, ROOT, layers_of, machine_of, points, texts, workload
from upcycle import upcycle

from emit.flags import spell
from planner import search
from planner.cost.evaluate import Evaluator
from planner.cost.model import CostModel
from planner.facts.machine import Machine
from planner.facts.model import Model
from planner.gguf.analyze import analyze
from planner.layer_timing import time_layers
from planner.plans.rule import Problem
from planner.plans.settings import Settings
from planner.routing.analysis import analyse
from planner.routing.load import load
from planner.routing.shape import shape_of
from planner.units import GIB
from policies import RULES
from probes import llama_help
from probes.host import LocalHost
from probes.probe import Found
from probes.timed import Subject

MODELS = {"x256k8": (256, 8), "x128k8": (128, 8), "x64k4": (64, 4)}
RECORDED, PORT = 1024, 8097
TIMED_S, ANSWERS = 18.0, 3
SAMPLED = {"temperature": 0.8, "top_k": 40, "seed": 1}
GREEDY = {"temperature": 0.0}
GREEDY_AT = ("pool 0.125", "pool 0.5")
CACHE_LINE = re.compile(r"llama_moe_cache: .*|.*MoE cache size = .*|.*MoE cache budget is too small.*")
BUFFERS = re.compile(r"(\S+) (.*?)buffer size = +([\d.]+) MiB")


def rates(threads: int, free_bytes: int, llama: Path) -> dict[str, Any]:
    """Links, RAM and VRAM, and what the build lists."""
    torch.set_num_threads(threads)
    size = 1 << 30
    pinned, pageable = torch.empty(size, dtype=torch.uint8).pin_memory(), torch.ones(size, dtype=torch.uint8)
    there = torch.empty(size, dtype=torch.uint8, device="cuda")

    def fastest(work: Any, n_bytes: int, repeats: int = 5) -> float:
        taken = []
        for _ in range(repeats):
            torch.cuda.synchronize()
            start = time.perf_counter()
            work()
            torch.cuda.synchronize()
            taken.append(time.perf_counter() - start)
        return n_bytes / min(taken)

    ram, card = torch.ones(size, dtype=torch.float32), torch.cuda.get_device_properties(0)
    told = subprocess.run([llama / "llama-server", "--help"], capture_output=True, text=True, check=True)
    version = subprocess.run([llama / "llama-server", "--version"], capture_output=True, text=True, check=True)
    build = re.search(r"version: (\d+)", version.stdout + version.stderr)
    return {
        "kind": "machine",
        "name": torch.cuda.get_device_name(0),
        "total_bytes": torch.cuda.mem_get_info()[1],
        "gpu_threads": card.multi_processor_count * getattr(card, "max_threads_per_multi_processor", 0) or None,
        "bare_context_bytes": bare_context(),
        "free_bytes": free_bytes,
        "pinned_bps": fastest(lambda: there.copy_(pinned, non_blocking=True), size),
        "pageable_bps": fastest(lambda: there.copy_(pageable), size),
        "vram_bps": fastest(lambda: there.clone(), 2 * size),
        "ram_bps": fastest(ram.sum, 4 * size),
        "ram_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "threads": threads,
        "build": int(build[1]) if build else None,
        "flags": list(llama_help.parse(told.stdout)),
    }


BARE = """
import ctypes, sys
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
cuda.cuInit(0)
print(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), flush=True)
sys.stdin.read()
"""


def bare_context() -> int:
    """Bytes that a CUDA context takes in a process that does nothing with it."""
    before = torch.cuda.mem_get_info()[0]
    with subprocess.Popen([sys.executable, "-c", BARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        return int(before - torch.cuda.mem_get_info()[0])


def record(llama: Path, model: Path, text: Path, out: Path, threads: int) -> None:
    """The selections of the model on the text, by the callback of the same libllama."""
    job = {"model": str(model), "text": str(text), "chunk": 512, "chunks": RECORDED // 512, "answer": 128}
    job |= {"threads": threads, "seed": 1, "out": str(out)}
    command = [sys.executable, str(ROOT / "probes" / "script_routing.py"), str(llama / "libllama.so"), json.dumps(job)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ask(path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def prompts() -> Iterator[str]:
    """Pieces of the second text, about ``PROMPT`` tokens each."""
    text, size = texts()[1], int(PROMPT * 4.2)
    for i in range(ANSWERS):
        start = i * (len(text) - size) // ANSWERS
        yield text[start : start + size]


def serve(llama: Path, flags: tuple[str, ...], log: Path, before: int, sampling: dict[str, Any]) -> dict[str, Any]:
    """Start, answer, stop; speeds, memory of the whole device and what the log says."""
    argv = [str(llama / "llama-server"), *flags, "-lv", "4"]
    argv[argv.index("--port") + 1] = str(PORT)
    row: dict[str, Any] = {"decode_tps": [], "prompt_tps": [], "prompt_n": [], "predicted_n": []}
    start = time.monotonic()
    with open(log, "wb") as output:
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            row["load_s"] = wait(server, start)
            lowest = before
            for prompt in prompts():
                body = {"prompt": prompt, "n_predict": ANSWER, "ignore_eos": True, "cache_prompt": False}
                told = ask("/completion", body | sampling)["timings"]
                row["decode_tps"].append(round(told["predicted_per_second"], 2))
                row["prompt_tps"].append(round(told["prompt_per_second"], 1))
                row["prompt_n"].append(told["prompt_n"])
                row["predicted_n"].append(told["predicted_n"])
                lowest = min(lowest, torch.cuda.mem_get_info()[0])
            row["used_bytes"] = before - lowest
        except (OSError, urllib.error.URLError) as error:
            row["error"] = str(error)[:200]
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    said = log.read_text(errors="replace")
    row["cache"] = [line.strip()[-160:] for line in CACHE_LINE.findall(said)]
    row["buffers_mib"] = {f"{m[1]} {m[2].strip()}": float(m[3]) for m in BUFFERS.finditer(said)}
    if "error" in row:
        row["tail"] = said[-600:]
    return row


def wait(server: subprocess.Popen[bytes], start: float) -> float:
    while time.monotonic() - start < 90:
        if server.poll() is not None:
            raise OSError(f"the server ended with status {server.returncode}")
        try:
            ask("/health")
            return round(time.monotonic() - start, 2)
        except OSError:
            time.sleep(0.2)
    raise OSError("the server did not answer within 90 s")


def planned(machine: Machine, model: Model) -> Iterator[tuple[str, Settings]]:
    """What moeplan plans on a card with room for a quarter and a half of the experts beside the rest and 1 GiB."""
    bare = dict(points(model, machine.cpu.physical_cores or 1))["pool 0"]
    rest = Evaluator(CostModel(model, machine), workload()).candidate(bare, ()).memory.devices[0].predicted_bytes
    for share in (0.25, 0.5):
        room = rest + GIB + int(share * model.expert_bytes)
        work = workload(vram_bytes=(("CUDA0", room),), pins=(("load_mode", "none"), ("n_ubatch", "512")))
        chosen = search.plan(Problem(machine, model, work), RULES).chosen.settings
        yield f"moeplan {share:g}", chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", type=Path, required=True)
    parser.add_argument("--dense", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=Path("/tmp/moeplan-pool"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--free-gib", type=float, default=12.0)
    parser.add_argument("--budget", type=float, default=350.0, help="seconds; no point is started that would pass it")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", nargs="*", default=list(MODELS))
    asked = parser.parse_args()
    end = time.monotonic() + asked.budget
    for folder in (asked.models, asked.out):
        folder.mkdir(parents=True, exist_ok=True)
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    free = int(asked.free_gib * GIB)
    found = rates(asked.threads, free, asked.llama)
    torch.cuda.empty_cache()
    ballast = torch.empty(torch.cuda.mem_get_info()[0] - free, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    with open(asked.out / "rows.jsonl", "a") as rows:

        def keep(**row: Any) -> None:
            rows.write(json.dumps(row) + "\n")
            rows.flush()
            print(json.dumps(row)[:700], flush=True)

        keep(**found | {"free_bytes": before})
        for name in asked.only:
            run_model(name, asked, found | {"free_bytes": before}, before, end, keep)
    del ballast


def run_model(name: str, asked: Any, found: dict[str, Any], before: int, end: float, keep: Any) -> None:
    if time.monotonic() > end - 60:
        print(f"{name}: no time left", flush=True)
        return
    path, recording, text = asked.models / f"{name}.gguf", asked.out / f"{name}.npz", asked.models / "text.txt"
    start = time.monotonic()
    if not path.exists():
        upcycle(asked.dense, path, *MODELS[name])
    wrote, start = time.monotonic() - start, time.monotonic()
    text.write_text(texts()[0], encoding="utf-8")
    record(asked.llama, path, text, recording, asked.threads)
    recorded, start = time.monotonic() - start, time.monotonic()
    model, host = analyze(str(path)), LocalHost(cache_dir=str(asked.models / "cache"))
    shape, routing = shape_of(model), load(str(recording), model)
    model = replace(model, routing=analyse(routing, shape.bytes_of(routing.layers), every_policy=False))
    timed = time_layers(host, Subject(machine_of(found, []), model), TIMED_S, str(asked.llama), ())
    layers = timed.value["rates"] if isinstance(timed, Found) else []
    note = timed.note if isinstance(timed, Found) else timed.reason
    took = {"wrote_s": round(wrote, 1), "recorded_s": round(recorded, 1), "timed_s": round(time.monotonic() - start, 1)}
    size = {"n_expert": model.n_expert, "n_expert_used": model.n_expert_used, "expert_bytes": model.expert_bytes}
    keep(kind="model", model=name, layers=layers, note=note, **size, **took)
    run_points(model, machine_of(found, layers), asked, before, end, lambda **row: keep(model=name, **row))


def run_points(model: Model, machine: Machine, asked: Any, before: int, end: float, keep: Any) -> None:
    """One server per point; a point that the time does not allow is left out."""
    found: dict[str, tuple[float, Settings]] = {}

    def run(label: str, settings: Settings, sampling: dict[str, Any] = SAMPLED, **how: Any) -> None:
        if time.monotonic() > end - 15:
            print(f"{label}: no time left", flush=True)
            return
        flags = spell(settings, model, machine)
        row = serve(asked.llama, flags, asked.models / "server.log", before, sampling)
        pool = {"n_cpu_moe": settings.n_cpu_moe, "moe_cache_mib": settings.moe_cache_mib}
        keep(kind="point", label=label, **how, flags=" ".join(flags), settings=plain(settings), **pool, **row)
        if row["decode_tps"]:
            found.setdefault(label, (statistics.median(row["decode_tps"]), settings))

    for label, settings in (*points(model, asked.threads), *planned(machine, model), *layers_of(model, asked.threads)):
        run(label, settings)
    for label in sorted(found, key=lambda label: -found[label][0])[:1]:
        run(label, found[label][1], again=True)
    for label in GREEDY_AT:
        if label in found:
            run(label, found[label][1], GREEDY, greedy=True)


def plain(settings: Settings) -> dict[str, Any]:
    return json.loads(json.dumps(asdict(settings)))


if __name__ == "__main__":
    main()
