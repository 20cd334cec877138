"""Replay recorded answers of llama-fit-params: ``python benchmarks/memory/replay.py [--shared DIR] [--verbose]``.

Model layouts are written hollow (full size, no weights) into a temporary folder, a few seconds each; with
``--layouts DIR`` they are kept there.
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

from truth import TERMS, Row, compare, recorded, report

from planner.gguf.analyze import analyze

read = cache(analyze)
WIDE = Path(__file__).with_name("architectures")


def hollow(shared: Path, folder: Path, name: str, quant: str | None = None) -> Path:
    """A published layout at full size, without weights, in its own mix or ``quant``."""
    path, zoo = folder / f"{name}{f'-{quant}' if quant else ''}.gguf", shared / "zoo"
    if not path.exists():
        command = [sys.executable, str(zoo / "zoo.py"), name, str(path), "--vocab", str(zoo / "vocab")]
        command += ["--quant", quant] if quant else []
        subprocess.run(command, check=True, capture_output=True)
    return path


def layouts(shared: Path, folder: Path) -> Iterator[Row]:
    """``cases/cuda_memory.jsonl``: what the CUDA backend would allocate for six published models."""
    for case in recorded(shared / "cases" / "cuda_memory.jsonl"):
        model = read(str(hollow(shared, folder, case["model"])))
        yield from compare(case["model"], model, case, case["mib"], small=False)


def settings(shared: Path, folder: Path) -> Iterator[Row]:
    """``cuda-b11549.jsonl``: random settings of 36 published layouts on an H200, by which the rules were found."""
    yield from _settings("cuda-b11549.jsonl", shared, folder)


def holdout(shared: Path, folder: Path) -> Iterator[Row]:
    """``cuda-b11549-holdout.jsonl``: as many again."""
    yield from _settings("cuda-b11549-holdout.jsonl", shared, folder)


def _settings(name: str, shared: Path, folder: Path) -> Iterator[Row]:
    for case in recorded(Path(__file__).with_name(name)):
        model = read(str(hollow(shared, folder, case["model"])))
        yield from compare(case["model"], model, case, case["mib"], small=False)


def architectures(shared: Path, folder: Path) -> Iterator[Row]:
    """``zoo/archs/memory_truth.jsonl``: llama.cpp's own test architectures on one RPC device."""
    archs = shared / "zoo" / "archs"
    sizes = {name: index["file_bytes"] for name, index in json.loads((archs / "index.json").read_text()).items()}
    yield from _heads(archs, folder, sizes, small=True)


def wide_architectures(shared: Path, folder: Path) -> Iterator[Row]:
    """``architectures/``: eight more architectures, 2,048 wide and 8 blocks deep, on one RPC device."""
    yield from _heads(WIDE, folder, {}, small=False)


def _heads(archs: Path, folder: Path, sizes: dict[str, int], *, small: bool) -> Iterator[Row]:
    """Answers for files of which only the headers are kept; a case tells its file's size unless ``sizes`` does."""
    for line in (archs / "memory_truth.jsonl").read_text().splitlines():
        case = json.loads(line)
        path = folder / f"{case['arch']}.gguf"
        if not path.exists():
            path.write_bytes(lzma.decompress((archs / f"{case['arch']}.head.xz").read_bytes()))
            os.truncate(path, sizes.get(case["arch"]) or case["file_bytes"])
        truth = {row[0]: dict(zip(TERMS, map(int, row[1:]), strict=True)) for row in case["rows"]}
        yield from compare(case["arch"], read(str(path)), case, truth, small=small)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path(__file__).parents[3] / "shared")
    parser.add_argument("--layouts", type=Path, help="folder of hollow files, e.g. the one the tests keep")
    parser.add_argument("--verbose", action="store_true", help="every figure, not only those outside the tolerance")
    args = parser.parse_args()
    outside = 0
    with tempfile.TemporaryDirectory() as passing:
        folder = args.layouts or Path(passing)
        for source in (layouts, settings, holdout, architectures, wide_architectures):
            print(f"== {source.__doc__ or ''}")
            outside += report(source(args.shared, folder), verbose=args.verbose)
    return int(outside > 0)


if __name__ == "__main__":
    raise SystemExit(main())
