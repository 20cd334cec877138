"""``moeplan verify`` on a CUDA machine made small by a ballast: a plan of assumed rates, then a planted bad one.

    LD_LIBRARY_PATH=LLAMA python3 benchmarks/verify/gpu.py --llama LLAMA --dense SmolLM2.gguf --out FOLDER

``LLAMA`` is a folder of CUDA programs. Needs torch (ballast), pynvml and numpy (the mixture). It writes a model of real
text (128 experts, 8 used, 6.5 GB), holds all but ``--free-gib`` of GPU 0, and runs in turn

- ``verify MODEL --fit``: assumed rates, so that the machine has something to correct;
- ``plan MODEL --fit``: what the next plan takes from it;
- ``plan MODEL --fit --pin load-mode=mmap --pin n-ubatch=128`` to a file, and ``verify`` of that file: the plant. A plan
  file holds no pins, so trials may undo both.

Everything that ran is in ``FOLDER``: the JSON of each, ``stderr.txt``, ``samples.jsonl`` (NVML once a second, with the
step that ran) and ``summary.jsonl``. About three minutes. ``--rpc HOST:PORT`` uses a llama.cpp RPC server instead of a
GPU, without ballast and NVML, to try the script itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PERIOD_S = 1.0
PLANT = ("--pin", "load-mode=mmap", "--pin", "n-ubatch=128")
EXPERTS, USED = 128, 8


class Card:
    """GPU 0 with all but ``free_gib`` held; samples memory and load to a file until it is closed."""

    def __init__(self, free_gib: float, out: Path) -> None:
        import pynvml
        import torch

        pynvml.nvmlInit()
        self._nvml, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        hold = self._memory().free - int(free_gib * 2**30)
        self._ballast = torch.empty(max(hold, 1), dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        self.name, self.base_bytes = torch.cuda.get_device_name(0), int(self._memory().used)
        self.total_bytes = int(self._memory().total)
        self.step, self.peak_bytes = "", 0
        self._out, self._stop = out.open("a"), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _memory(self) -> Any:
        return self._nvml.nvmlDeviceGetMemoryInfo(self._handle)

    def begin(self, step: str) -> None:
        self.step, self.peak_bytes = step, 0

    def _watch(self) -> None:
        start = time.monotonic()
        while not self._stop.wait(PERIOD_S):
            used = int(self._memory().used)
            self.peak_bytes = max(self.peak_bytes, used)
            busy = int(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)
            row = {"at_s": round(time.monotonic() - start, 2), "step": self.step, "used_bytes": used, "busy": busy}
            self._out.write(json.dumps(row) + "\n")

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._out.close()


class Runs:
    """Commands of moeplan, one after the other; what they said goes to the folder."""

    def __init__(self, asked: argparse.Namespace, model: Path, card: Card | None, cache: str) -> None:
        self._asked, self._card = asked, card
        self.model = model
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self._env = os.environ | {"XDG_CACHE_HOME": cache, "PYTHONPATH": path}
        self._where = ("--llama", str(asked.llama), *(("--rpc", asked.rpc) if asked.rpc else ()))
        self._limits = ("--vram", f"RPC0={asked.free_gib}GiB") if asked.rpc else ()

    def __call__(self, step: str, name: str, subject: Path, *options: str) -> dict[str, Any]:
        """One command with ``--json -o FOLDER/STEP.json``; the object, empty where there is none."""
        out = self._asked.out / f"{step}.json"
        limits = () if subject.suffix == ".json" else self._limits
        argv = [sys.executable, "-m", "planner", name, str(subject), "--fit", *self._where, *limits, *options]
        if self._card is not None:
            self._card.begin(step)
        start = time.monotonic()
        with (self._asked.out / "stderr.txt").open("ab") as err:
            err.write(f"\n=== {step}: {' '.join(argv[1:])}\n".encode())
            err.flush()
            done = subprocess.run([*argv, "--json", "-o", str(out)], env=self._env, stderr=err, stdout=err, check=False)
        found = json.loads(out.read_text()) if out.exists() else {}
        self._say(step, found, done.returncode, time.monotonic() - start)
        return found

    def _say(self, step: str, found: dict[str, Any], code: int, seconds: float) -> None:
        row: dict[str, Any] = {"step": step, "exit": code, "seconds": round(seconds, 1)}
        plan = found.get("plan", found)
        row |= {"settings": plan.get("settings"), "speed": plan.get("speed"), "verified": plan.get("verified")}
        if self._card is not None:
            row["own_peak_bytes"] = self._card.peak_bytes
        for key in ("verdict", "reason", "depth_tokens", "load_s", "observed", "steps_back", "notes", "correction"):
            row[key] = found.get(key)
        row["trials"] = [
            {k: trial[k] for k in ("changes", "expected_gain", "before", "after", "pairs", "gain", "error", "kept")}
            | {"peak_bytes": trial["peak_bytes"], "reason": trial["reason"]}
            for trial in found.get("trials", ())
        ]
        with (self._asked.out / "summary.jsonl").open("a") as sink:
            sink.write(json.dumps(row) + "\n")
        print(step, f"exit {code}, {seconds:.0f} s:", row["verdict"], row["reason"], flush=True)
        for item in row["observed"] or ():
            print(f"  {item['term']}: {item['observed']:.6g} of {item['predicted']['mid']:.6g} {item['unit']}")
        for trial in row["trials"]:
            print(f"  {trial['changes']}: {trial['before']} -> {trial['after']}, {trial['reason']}", flush=True)
        for note in row["notes"] or ():
            print(f"  {note}", flush=True)


def steps(runs: Runs, asked: argparse.Namespace) -> None:
    limits = ("--budget", str(asked.budget), "--max-trials", str(asked.max_trials))
    runs("assumed", "verify", runs.model, *limits)
    runs("next", "plan", runs.model)
    runs("plant", "plan", runs.model, *PLANT)
    runs("planted", "verify", asked.out / "plant.json", *limits)


def mixture(asked: argparse.Namespace, folder: str) -> Path:
    """The model that was named, or the dense one repeated as experts behind a random router."""
    if asked.model is not None:
        return Path(asked.model)
    sys.path.insert(0, str(ROOT / "benchmarks" / "pool"))
    from upcycle import upcycle

    path = Path(folder) / f"x{EXPERTS}k{USED}.gguf"
    upcycle(asked.dense, path, EXPERTS, USED)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", type=Path, required=True)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--dense", type=Path)
    which.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--free-gib", type=float, default=5.0)
    parser.add_argument("--budget", type=float, default=70.0, help="seconds of each verification")
    parser.add_argument("--max-trials", type=int, default=6)
    parser.add_argument("--rpc", help="a stand-in for the GPU")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        model = mixture(asked, folder)
        card = None if asked.rpc else Card(asked.free_gib, asked.out / "samples.jsonl")
        try:
            if card is not None:
                print(card.name, f"{(card.total_bytes - card.base_bytes) >> 20} MiB free", flush=True)
            steps(Runs(asked, model, card, folder), asked)
        finally:
            if card is not None:
                card.close()


if __name__ == "__main__":
    main()
