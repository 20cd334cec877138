"""What choosing a token costs: ``LD_LIBRARY_PATH=LLAMA python benchmarks/pool/sampler.py LLAMA/libllama.so``

llama.cpp's own samplers over logits of two vocabularies: the whole of it at a temperature, the 40 likeliest, greedy.
The least of 60 runs each. llama-bench samples nothing, llama-server does so once per token.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import Any

import numpy as np

VOCABULARIES, RUNS = (49_152, 151_936), 60
ENTRY = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Candidates(ctypes.Structure):
    """``llama_token_data_array``, include/llama.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("selected", ctypes.c_int64),
        ("sorted", ctypes.c_bool),
    )


def sampler(library: ctypes.CDLL, name: str, *given: tuple[Any, float]) -> ctypes.c_void_p:
    make = getattr(library, f"llama_sampler_init_{name}")
    make.restype, make.argtypes = ctypes.c_void_p, [kind for kind, _ in given]
    return ctypes.c_void_p(make(*(value for _, value in given)))


def seconds(library: ctypes.CDLL, chain: list[ctypes.c_void_p], size: int) -> float:
    taken, random = [], np.random.default_rng(0)
    for _ in range(RUNS):
        entries = np.zeros(size, ENTRY)
        entries["id"], entries["logit"] = np.arange(size), random.normal(0, 3, size)
        found = Candidates(entries.ctypes.data, size, -1, False)
        start = time.perf_counter()
        for link in chain:
            library.llama_sampler_apply(link, ctypes.byref(found))
        taken.append(time.perf_counter() - start)
    return min(taken)


def main(path: str) -> None:
    library = ctypes.CDLL(path)
    draw = sampler(library, "dist", (ctypes.c_uint32, 1))
    warm, mild = (sampler(library, "temp", (ctypes.c_float, t)) for t in (4.0, 0.8))
    best = sampler(library, "top_k", (ctypes.c_int32, 40))
    chains = {"whole": [warm, draw], "top 40": [best, mild, draw], "greedy": [sampler(library, "greedy")]}
    for size in VOCABULARIES:
        for name, chain in chains.items():
            taken = seconds(library, chain, size)
            print(json.dumps({"vocabulary": size, "sampler": name, "ms": round(1e3 * taken, 3)}))


if __name__ == "__main__":
    main(sys.argv[1])
