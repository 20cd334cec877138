"""Replay recorded answers of llama-fit-params: ``python benchmarks/memory/replay.py [--shared DIR] [--verbose]``.

Model layouts are written hollow (full size, no weights) into a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from truth import TERMS, Row, compare, report

from planner.gguf.analyze import analyze

read = cache(analyze)


def layouts(shared: Path, folder: Path) -> Iterator[Row]:
    """``cases/cuda_memory.jsonl``: what the CUDA backend would allocate for six published models."""
    for line in (shared / "cases" / "cuda_memory.jsonl").read_text().splitlines():
        case = json.loads(line)
        path = folder / f"{case['model']}.gguf"
        if not path.exists():
            zoo = shared / "zoo"
            command = [sys.executable, str(zoo / "zoo.py"), case["model"], str(path), "--vocab", str(zoo / "vocab")]
            subprocess.run(command, check=True, capture_output=True)
        yield from compare(case["model"], read(str(path)), case, case["mib"], small=False)


def architectures(shared: Path, folder: Path) -> Iterator[Row]:
    """``zoo/archs/memory_truth.jsonl``: llama.cpp's own test architectures on one RPC device."""
    archs = shared / "zoo" / "archs"
    sizes = json.loads((archs / "index.json").read_text())
    for line in (archs / "memory_truth.jsonl").read_text().splitlines():
        case = json.loads(line)
        path = folder / f"{case['arch']}.gguf"
        if not path.exists():
            path.write_bytes(lzma.decompress((archs / f"{case['arch']}.head.xz").read_bytes()))
            os.truncate(path, sizes[case["arch"]]["file_bytes"])
        truth = {row[0]: dict(zip(TERMS, map(int, row[1:]), strict=True)) for row in case["rows"]}
        yield from compare(case["arch"], read(str(path)), case, truth, small=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path(__file__).parents[3] / "shared")
    parser.add_argument("--verbose", action="store_true", help="every figure, not only those outside the tolerance")
    args = parser.parse_args()
    outside = 0
    with tempfile.TemporaryDirectory() as folder:
        for source in (layouts, architectures):
            print(f"== {source.__doc__ or ''}")
            outside += report(source(args.shared, Path(folder)), verbose=args.verbose)
    return int(outside > 0)


if __name__ == "__main__":
    raise SystemExit(main())
