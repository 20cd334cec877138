"""Times a GGUF with the libllama of llama-cpp-python: ``script_layer.py LIBLLAMA JOB`` with the job as JSON.

Prints lines like those of ``llama-bench -o jsonl``. It runs in a process of its own, which may die. Symbols and
structs are those of the installed ``llama_cpp`` package, whose library this is (checked with 0.3.36, b11312).
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

EXPERTS = rb"ffn_(up|down|gate|gate_up)_(ch|)exps"
"""Pattern of ``--cpu-moe``, common/common.h."""


class Override(ctypes.Structure):
    """``llama_model_tensor_buft_override``, include/llama.h."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p))


def library(folder: str, name: str) -> Any:
    paths = sorted(glob.glob(os.path.join(folder, name)))
    if not paths:
        raise SystemExit(f"no {name} in {folder}")
    return ctypes.CDLL(paths[0])


def function(lib: Any, name: str, result: Any, *arguments: Any) -> Any:
    found = getattr(lib, name)
    found.restype, found.argtypes = result, arguments
    return found


def load(lc: Any, folder: str, job: dict[str, Any]) -> Any:
    """The model with its weights where the job wants them."""
    params = lc.llama_model_default_params()
    params.n_gpu_layers = 999 if job["device"] else 0
    if hasattr(params, "load_mode"):
        params.load_mode = 0
    else:
        params.use_mmap = False
    keep: list[Any] = []
    if job["device"]:
        by_name = function(library(folder, "*ggml.*"), "ggml_backend_dev_by_name", ctypes.c_void_p, ctypes.c_char_p)
        device = by_name(job["device"].encode())
        if not device:
            raise SystemExit(f"no device {job['device']}")
        keep.append((ctypes.c_void_p * 2)(device, None))
        params.devices = ctypes.cast(keep[-1], type(params.devices))
    if job["host_experts"]:
        buffer = function(library(folder, "*ggml-base.*"), "ggml_backend_cpu_buffer_type", ctypes.c_void_p)()
        keep.append((Override * 2)(Override(EXPERTS, buffer), Override(None, None)))
        params.tensor_buft_overrides = ctypes.cast(keep[-1], type(params.tensor_buft_overrides))
    model = lc.llama_model_load_from_file(job["model"].encode(), params)
    if not model:
        raise SystemExit("the file does not load")
    return model


class Runner:
    """A context of the model that decodes made-up tokens."""

    def __init__(self, lc: Any, model: Any, job: dict[str, Any]) -> None:
        most = max(job["prompts"])
        params = lc.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = most + job["n_gen"] + 8, most, most
        params.n_threads = params.n_threads_batch = job["threads"]
        params.op_offload = params.offload_kqv = bool(job["device"])
        self.context = lc.llama_init_from_model(model, params)
        if not self.context:
            raise SystemExit("no context")
        self._lc, self._repeats, self._seed = lc, job["repeats"], 1
        self._vocabulary = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))

    def _feed(self, n: int) -> None:
        tokens = (self._lc.llama_token * n)()
        for i in range(n):
            self._seed = (self._seed * 1103515245 + 12345) % (1 << 31)
            tokens[i] = self._seed % self._vocabulary
        if self._lc.llama_decode(self.context, self._lc.llama_batch_get_one(tokens, n)):
            raise SystemExit("decode failed")
        self._lc.llama_synchronize(self.context)

    def prompt(self, n: int) -> None:
        self._feed(n)

    def answer(self, n: int) -> None:
        for _ in range(n):
            self._feed(1)

    def forget(self) -> None:
        """Start again at an empty cache."""
        self._lc.llama_memory_clear(self._lc.llama_get_memory(self.context), False)

    def timed(self, work: Callable[[int], None], n: int) -> list[int]:
        """Nanoseconds of each repeat; the first run only warms up."""
        samples = []
        for _ in range(self._repeats + 1):
            self.forget()
            start = time.perf_counter_ns()
            work(n)
            samples.append(time.perf_counter_ns() - start)
        return samples[1:]


def say(n_prompt: int, n_gen: int, samples: list[int]) -> None:
    sys.stdout.write("\n" + json.dumps({"n_prompt": n_prompt, "n_gen": n_gen, "samples_ns": samples}) + "\n")
    sys.stdout.flush()


def main(path: str, text: str) -> None:
    import llama_cpp as lc

    job: dict[str, Any] = json.loads(text)
    lc.llama_backend_init()
    runner = Runner(lc, load(lc, os.path.dirname(path), job), job)
    for n in job["prompts"]:
        say(n, 0, runner.timed(runner.prompt, n))
    if job["n_gen"]:
        say(0, job["n_gen"], runner.timed(runner.answer, job["n_gen"]))


if __name__ == "__main__":
    main(*sys.argv[1:3])
