"""The script that times a file with libllama: run by ``python -I -c``, it may die without ending us.

Arguments: path of libllama and the job as JSON. Prints lines like those of ``llama-bench -o jsonl``.
Symbols and structs are those of the installed ``llama_cpp`` package, which matches its library.
"""

from __future__ import annotations

from typing import Final

SCRIPT: Final = """
import ctypes, glob, json, os, sys, time
job = json.loads(sys.argv[2])
import llama_cpp as lc
lc.llama_backend_init()
folder = os.path.dirname(sys.argv[1])
base = next((ctypes.CDLL(p) for p in sorted(glob.glob(os.path.join(folder, "*ggml-base.*")))), None)
ggml = next((ctypes.CDLL(p) for p in sorted(glob.glob(os.path.join(folder, "*ggml.*")))), None)
def of(lib, name, result, *args):
    function = getattr(lib, name)
    function.restype, function.argtypes = result, args
    return function
mp = lc.llama_model_default_params()
mp.n_gpu_layers = 999 if job["device"] else 0
mp.use_mmap = False
ptr, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
if job["device"]:
    by_name = of(ggml, "ggml_backend_dev_by_name", ptr, text)
    device = by_name(job["device"].encode())
    if not device:
        sys.exit("no device " + job["device"])
    devices = (ptr * 2)(device, None)
    mp.devices = ctypes.cast(devices, type(mp.devices))
if job["host_experts"]:
    class Override(ctypes.Structure):
        _fields_ = [("pattern", text), ("buft", ptr)]
    cpu = of(base, "ggml_backend_cpu_buffer_type", ptr)()
    overrides = (Override * 2)(Override(rb"ffn_(up|down|gate|gate_up)_(ch|)exps", cpu), Override(None, None))
    mp.tensor_buft_overrides = ctypes.cast(overrides, type(mp.tensor_buft_overrides))
model = lc.llama_model_load_from_file(job["model"].encode(), mp)
if not model:
    sys.exit("the file does not load")
cp = lc.llama_context_default_params()
most = max(job["prompts"])
cp.n_ctx, cp.n_batch, cp.n_ubatch = most + job["n_gen"] + 8, most, most
cp.n_threads = cp.n_threads_batch = job["threads"]
cp.op_offload = bool(job["device"])
cp.offload_kqv = bool(job["device"])
context = lc.llama_init_from_model(model, cp)
if not context:
    sys.exit("no context")
vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
memory = lc.llama_get_memory(context)
seed = 1
def feed(n):
    global seed
    tokens = (lc.llama_token * n)()
    for i in range(n):
        seed = (seed * 1103515245 + 12345) % (1 << 31)
        tokens[i] = seed % vocab
    if lc.llama_decode(context, lc.llama_batch_get_one(tokens, n)):
        sys.exit("decode failed")
def prompt(n):
    feed(n)
    lc.llama_synchronize(context)
def answer(n):
    for _ in range(n):
        feed(1)
        lc.llama_synchronize(context)
def timed(work, n):
    samples = []
    for k in range(job["repeats"] + 1):
        lc.llama_memory_clear(memory, False)
        start = time.perf_counter_ns()
        work(n)
        samples.append(time.perf_counter_ns() - start)
    return samples[1:]
for n in job["prompts"]:
    print("\\n" + json.dumps({"n_prompt": n, "n_gen": 0, "samples_ns": timed(prompt, n)}), flush=True)
if job["n_gen"]:
    samples = timed(answer, job["n_gen"])
    print("\\n" + json.dumps({"n_prompt": 0, "n_gen": job["n_gen"], "samples_ns": samples}), flush=True)
"""
"""Overrides: ``llama_model_tensor_buft_override`` in include/llama.h; pattern of ``-cmoe`` in common/common.h."""
