"""Ask a local llama-fit-params for random settings and compare: ``fresh.py LLAMA_FOLDER GGUF... [-n 50] [--rpc]``.

``--rpc`` starts ggml-rpc-server on 127.0.0.1, which stands in for a GPU; without it only the CPU computes.
Nothing is allocated, so hollow files serve as well as real ones.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from truth import TERMS, Row, compare, report

from planner.gguf.analyze import analyze

read = cache(analyze)


def random_case(rng: random.Random) -> dict[str, Any]:
    """Settings that a user could give; quantised caches only with flash attention.

    A third leaves layers on the host, a tenth the caches.
    """
    fa = rng.choice(["on", "on", "on", "off"])
    kv = rng.choice(["f16", "f16", "q8_0", "q4_0"]) if fa == "on" else "f16"
    ubatch = rng.choice([16, 64, 256, 512, 512, 1024, 2048, 4096])
    ctx = rng.choice([2048, 4096, 8192, 16384, 32768, 65536, 131072])
    return {
        "ctx": ctx, "ubatch": ubatch, "batch": max(2048, ubatch), "ctk": kv, "ctv": kv, "fa": fa,
        "ngl": rng.choice([999, 999, rng.randint(1, 48)]), "nkvo": rng.random() < 0.1,
        "n_cpu_moe": rng.choice([0, 999, rng.randint(1, 48)]), "n_parallel": rng.choice([1, 1, 4]),
    }  # fmt: skip


def ask(folder: Path, model: Path, case: dict[str, Any], endpoint: str | None) -> dict[str, dict[str, int]]:
    """llama-fit-params' rows: device → term → MiB; none where llama.cpp itself aborts."""
    flags = {"-c": "ctx", "-ub": "ubatch", "-b": "batch", "-ctk": "ctk", "-ctv": "ctv", "-fa": "fa", "-ngl": "ngl"}
    flags |= {"-ncmoe": "n_cpu_moe", "-np": "n_parallel"}
    command = [str(folder / "llama-fit-params"), "-m", str(model), "--fit-print", "on", "-fit", "off", "-nr"]
    for flag, key in flags.items():
        command += [flag, str(case[key])]
    command += ["-nkvo"] if case["nkvo"] else []
    if endpoint:
        command += ["--rpc", endpoint]
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if result.returncode < 0:
        print(f"llama.cpp ended by signal {-result.returncode}: {model.stem} {case}")
        return {}
    result.check_returncode()
    rows = [line.split() for line in result.stdout.splitlines()]
    return {row[0]: dict(zip(TERMS, map(int, row[1:]), strict=True)) for row in rows if len(row) == 4}


@contextmanager
def rpc_server(folder: Path, *, wanted: bool) -> Iterator[str | None]:
    """An RPC device on a free port of this machine."""
    if not wanted:
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(folder / "ggml-rpc-server"), "-H", "127.0.0.1", "-p", str(port)]
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        time.sleep(1.0)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llama", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("-n", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rpc", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    rng, rows = random.Random(args.seed), list[Row]()
    with rpc_server(args.llama, wanted=args.rpc) as endpoint:
        for i in range(args.n):
            path, case = args.models[i % len(args.models)], random_case(rng)
            truth = ask(args.llama, path, case, endpoint)
            if truth:
                rows += compare(path.stem, read(str(path)), case, truth, small=False)
    return int(report(rows, verbose=args.verbose) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
