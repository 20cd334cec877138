"""On a CUDA machine made small by a ballast: moeplan's plan against llama.cpp's own fit, and memory against prediction.

Needs torch (ballast) and pynvml. One JSON object per step is appended to --out.

    python benchmarks/gpu/plan_against_fit.py --bin DIR --model F.gguf --free-gib 12 --out rows.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pynvml
import torch

MIB = 1 << 20


class Card:
    """GPU 0 with all but ``free_gib`` held; samples used memory four times a second while asked to."""

    def __init__(self, free_gib: float) -> None:
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        torch.zeros(1, device="cuda")
        hold = pynvml.nvmlDeviceGetMemoryInfo(self._handle).free - int(free_gib * 2**30)
        self._ballast = torch.empty(max(hold, 1), dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        self.base = self.used()
        self.total = pynvml.nvmlDeviceGetMemoryInfo(self._handle).total
        self.peak, self._stop = 0, threading.Event()

    def used(self) -> int:
        return int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def __enter__(self) -> Card:
        self.peak = 0
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.25):
            self.peak = max(self.peak, self.used() - self.base)


def plan(model: str, binaries: str, extra: list[str]) -> dict[str, Any]:
    argv = [sys.executable, "-m", "planner", "--fit", model, "--llama", binaries, "--json", *extra]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    if not done.stdout:
        raise SystemExit(f"no plan: {done.stderr}")
    return dict(json.loads(done.stdout))


def bench(card: Card, binaries: str, model: str, flags: list[str], prompt: int, answer: int) -> dict[str, Any]:
    argv = [
        f"{binaries}/llama-bench",
        "-m",
        model,
        "-o",
        "jsonl",
        "-r",
        "2",
        "-p",
        str(prompt),
        "-n",
        str(answer),
        *flags,
    ]
    with card:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=280)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    result = {("tg" if row["n_gen"] else "pp"): round(row["avg_ts"], 2) for row in rows}
    return {"flags": flags, "rc": done.returncode, "peak_mib": card.peak // MIB, **result, "err": done.stderr[-300:]}


def bench_flags(settings: dict[str, Any]) -> list[str]:
    flags = ["-fa", "1" if settings["flash_attn"] == "on" else "0", "-ngl", str(settings["n_gpu_layers"])]
    flags += ["-ncmoe", str(settings["n_cpu_moe"]), "-ub", str(settings["n_ubatch"]), "-b", str(settings["n_batch"])]
    flags += ["-ctk", settings["type_k"], "-ctv", settings["type_v"], "-lm", settings["load_mode"]]
    if settings["override_tensor"]:
        flags += ["-ot", ";".join(settings["override_tensor"])]
    return flags


def fit_flags(binaries: str, model: str, n_ctx: int) -> list[str]:
    argv = [f"{binaries}/llama-fit-params", "-m", model, "-c", str(n_ctx), "-fa", "on"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    line = [text for text in done.stdout.splitlines() if text.startswith("-c")][-1]
    words = shlex.split(line)
    flags = ["-fa", "1", "-ngl", words[words.index("-ngl") + 1]]
    if "-ot" in words:
        flags += ["-ot", words[words.index("-ot") + 1].replace(",", ";")]
    return flags


def serve(card: Card, argv: list[str], words: int) -> dict[str, Any]:
    """Start the printed command, ask for one long answer, report timings and the peak."""
    port = argv[argv.index("--port") + 1]
    log = Path(tempfile.gettempdir()) / "moeplan-bench-server.log"
    started = time.monotonic()
    with card, log.open("ab") as sink:
        server = subprocess.Popen(argv, stdout=sink, stderr=sink, start_new_session=True)
        try:
            while time.monotonic() - started < 180 and server.poll() is None:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).read()
                    break
                except OSError:
                    time.sleep(0.5)
            load_s, after_load = time.monotonic() - started, card.peak
            prompt = " ".join(f"word{i * 7919 % 10007}" for i in range(words))
            body = json.dumps({"prompt": prompt, "n_predict": 128, "temperature": 1.0}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/completion", body, {"Content-Type": "application/json"}
            )
            answer = json.loads(urllib.request.urlopen(request, timeout=180).read())
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)
    timings = answer["timings"]
    return {
        "load_s": round(load_s, 1),
        "loaded_mib": after_load // MIB,
        "peak_mib": card.peak // MIB,
        "prompt_n": timings["prompt_n"],
        "prompt_tps": round(timings["prompt_per_second"], 1),
        "decode_tps": round(timings["predicted_per_second"], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--free-gib", type=float, required=True)
    parser.add_argument("--ctx", type=int, default=16384)
    parser.add_argument("--out", required=True)
    parser.add_argument("--bench", action="store_true", help="also llama-bench of the plan and of llama.cpp's fit")
    args = parser.parse_args()
    card = Card(args.free_gib)

    def emit(kind: str, **row: Any) -> None:
        row = {"kind": kind, "model": Path(args.model).name, "free_gib": args.free_gib, "ctx": args.ctx, **row}
        with open(args.out, "a", encoding="utf-8") as sink:
            sink.write(json.dumps(row) + "\n")
        print(json.dumps(row)[:1500], flush=True)

    made = plan(args.model, args.bin, ["--ctx", str(args.ctx)])
    device = made["memory"]["devices"][0]
    emit("plan", verdict=made["verdict"], settings=made["settings"], memory=made["memory"], speed=made["speed"])
    served = serve(card, made["argv"], words=1400)
    emit("server", predicted_mib=device["predicted_bytes"] // MIB, **served)
    if args.bench:
        emit("bench plan", **bench(card, args.bin, args.model, bench_flags(made["settings"]), 4096, 64))
        emit("bench fit", **bench(card, args.bin, args.model, fit_flags(args.bin, args.model, args.ctx), 4096, 64))


if __name__ == "__main__":
    main()
