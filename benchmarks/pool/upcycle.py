"""A dense llama-architecture GGUF → a mixture of any size: every expert a copy of the FFN behind a random router.

Words are the dense model's, routing depends on the token. Needs nothing but numpy and this repository.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from planner.demo import layout
from planner.gguf.ggml_types import GGML_TYPES
from planner.gguf.reader import read_header
from planner.gguf.source import FileSource

FFN = ("ffn_gate", "ffn_up", "ffn_down")


def upcycle(dense: Path, out: Path, n_expert: int, n_used: int, *, hollow: bool = False, seed: int = 3) -> None:
    """Write the mixture; the router's weights have a spread of 0.3, as in ``moeplan demo``.

    Args:
        hollow: leave the data out (a sparse file of the same length): enough to predict with.
    """
    source = FileSource(str(dense))
    header = read_header(source)
    types = {kind.name: number for number, kind in GGML_TYPES.items()}
    added = {"general.name": f"{dense.stem} x{n_expert}", "llama.expert_count": n_expert}
    added["llama.expert_used_count"] = n_used
    pairs = [source.read_at(a, b - a) for key, (a, b) in header.pairs.items() if key not in added]
    pairs += [layout.pair(key, value) for key, value in added.items()]
    width, random = int(header.metadata["llama.embedding_length"]), np.random.default_rng(seed)
    table, data = [], []
    for tensor in header.tensors:
        part = tensor.name.split(".")[-2]
        raw = source.read_at(header.data_start + tensor.offset, tensor.n_bytes)
        copies = n_expert if part in FFN else 1
        name = tensor.name.replace(part, f"{part}_exps") if part in FFN else tensor.name
        shape = (*tensor.shape, n_expert) if part in FFN else tensor.shape
        table.append((name, shape, types[tensor.type], tensor.n_bytes * copies))
        data.append((raw, copies))
        if part == "ffn_gate":
            router = (random.standard_normal((n_expert, width)) * 0.3).astype(np.float32).tobytes()
            table.append((tensor.name.replace(part, "ffn_gate_inp"), (width, n_expert), layout.F32, len(router)))
            data.append((router, 1))
    with open(out, "wb") as file:
        file.write(layout.header(pairs, table))
        if hollow:
            file.truncate(file.tell() + sum(layout.padded(row[-1]) for row in table))
            return
        for raw, copies in data:
            for _ in range(copies):
                file.write(raw)
            file.write(bytes(layout.padded(len(raw) * copies) - len(raw) * copies))


if __name__ == "__main__":
    upcycle(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), hollow="--hollow" in sys.argv)
