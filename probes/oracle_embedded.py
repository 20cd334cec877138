"""The same question to the llama.cpp inside llama-cpp-python, in a process of its own.

Its wheel installs libllama-common beside the packages, whose ``common_fit_print`` takes plain pointers and prints
llama-fit-params' rows. The package's own bindings give the layout of the parameters; it moves between builds, so
known defaults are read back before anything is trusted. Only plans without a device are asked: their placement needs
no override, and the wheel that pip builds has no device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from planner.facts.machine import Os
from probes import llama_embedded, oracle
from probes.host import Host
from probes.llama_build import ENVIRONMENT
from probes.probe import Absent, Failed, Found, Outcome

TYPES: Final = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30,
}  # fmt: skip
"""``enum ggml_type``, ggml/include/ggml.h, b11312."""

FLASH: Final = {"auto": -1, "off": 0, "on": 1}
"""``enum llama_flash_attn_type``, include/llama.h, b11312."""

_SCRIPT: Final = """
import ctypes, glob, json, os, sys
asked = json.loads(sys.argv[2])
import llama_cpp.llama_cpp as llama
folder = os.path.join(os.path.dirname(sys.argv[1]), "..", "..", "lib")
found = sorted(glob.glob(os.path.join(folder, "libllama-common.so*")))
if not found:
    sys.exit("the package came without libllama-common")
common = ctypes.CDLL(found[0])
copies = {line.split()[-1] for line in open("/proc/self/maps") if "/libllama.so" in line}
if len(copies) != 1:
    sys.exit("two copies of libllama would be loaded")
print_fit = getattr(common, "_Z16common_fit_printPKcP18llama_model_paramsP20llama_context_params", None)
if print_fit is None:
    sys.exit("its libllama-common has no common_fit_print")
llama.llama_backend_init()
model, context = llama.llama_model_default_params(), llama.llama_context_default_params()
known = (context.n_ctx, context.n_batch, context.n_ubatch, context.type_k, context.type_v, context.n_seq_max)
if known != (512, 2048, 512, 1, 1, 1):
    sys.exit("its bindings do not fit its library")
for target, values in ((model, asked["model"]), (context, asked["context"])):
    for name, value in values.items():
        if not hasattr(target, name):
            sys.exit("its bindings lack " + name)
        setattr(target, name, value)
print_fit.restype, print_fit.argtypes = None, (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)
print_fit(os.fsencode(sys.argv[3]), ctypes.addressof(model), ctypes.addressof(context))
ctypes.CDLL(None).fflush(None)
"""


def find(host: Host) -> Outcome[oracle.Program]:
    """The library to ask. Linux alone: only there it can be seen that one copy of libllama is loaded."""
    if host.os is not Os.LINUX:
        return Absent("the embedded engine can be asked on Linux only")
    package = host.package("llama_cpp")
    library = llama_embedded.library(host, package) if package else None
    return Found(oracle.Program(library, embedded=True)) if library else Absent("the embedded engine has no libllama")


def ask(host: Host, library: str, path: str, settings: Mapping[str, Any]) -> Outcome[oracle.Rows]:
    """Rows for the file at ``path`` on the CPU.

    Args:
        settings: fields of ``Settings`` by name.
    """
    question = json.dumps({"model": _model(settings), "context": context_fields(settings)})
    argv = (host.python, "-I", "-c", _SCRIPT, library, question, path)
    run = host.run(argv, oracle.TIMEOUT_S, ENVIRONMENT)
    if run.returncode != 0:
        return Failed(f"the embedded engine {oracle.said(run)}")
    return oracle.parse(run.stdout)


def _model(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of ``llama_model_params`` (``common_model_params_to_llama``, common/common.cpp, b11312)."""
    return {"n_gpu_layers": 0, "use_extra_bufts": settings["repack"], "no_host": settings["no_host"]}


def context_fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of ``llama_context_params`` (``common_context_params_to_llama``, common/common.cpp, b11312)."""
    same = ("n_ctx", "n_ubatch", "op_offload", "swa_full", "kv_unified")
    return {
        **{name: settings[name] for name in same},
        "n_batch": max(settings["n_batch"], settings["n_ubatch"]),
        "n_seq_max": settings["n_parallel"],
        "flash_attn_type": FLASH[settings["flash_attn"]],
        "type_k": TYPES[settings["type_k"]],
        "type_v": TYPES[settings["type_v"]],
        "offload_kqv": settings["kv_offload"],
    }
