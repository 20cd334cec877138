"""The libllama inside llama-cpp-python, asked in a process of its own.

Our process never loads it: a broken library would end us, and a second copy of libllama must not be loaded.
"""

from __future__ import annotations

import json
from typing import Any, Final

from probes.host import Host
from probes.text import clean

_TIMEOUT_S: Final = 30.0
_SCRIPT: Final = """
import ctypes, glob, json, os, sys
folder = os.path.dirname(sys.argv[1])
lib = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
def load(*folders, name):
    for path in sorted(p for f in folders for p in glob.glob(os.path.join(f, name))):
        try:
            return ctypes.CDLL(path)
        except OSError:
            pass
beside = os.path.join(folder, "..", "..", "lib")
common = load(folder, beside, name="*llama-common*")
try:
    build = ctypes.c_int.in_dll(common, "LLAMA_BUILD_NUMBER").value if common else None
except ValueError:
    build = None
ggml = load(folder, name="*ggml.*") or lib
def of(name, result, *args):
    function = getattr(ggml, name)
    function.restype, function.argtypes = result, args
    return function
size, ptr, text = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
of("ggml_backend_load_all", None)()
devices = []
for i in range(of("ggml_backend_dev_count", size)()):
    dev = of("ggml_backend_dev_get", ptr, size)(i)
    if of("ggml_backend_dev_type", ctypes.c_int, ptr)(dev) == 0:
        continue
    free, total = size(), size()
    of("ggml_backend_dev_memory", None, ptr, ptr, ptr)(dev, ctypes.byref(free), ctypes.byref(total))
    name = of("ggml_backend_dev_name", text, ptr)(dev).decode("utf-8", "replace")
    about = of("ggml_backend_dev_description", text, ptr)(dev).decode("utf-8", "replace")
    devices.append(f"  {name}: {about} ({total.value >> 20} MiB, {free.value >> 20} MiB free)")
lib.llama_supports_gpu_offload.restype = ctypes.c_bool
answer = {"build": build, "gpu": lib.llama_supports_gpu_offload(), "devices": devices}
print("\\n" + json.dumps(answer))
"""
"""Symbols: include/llama.h, ggml/include/ggml-backend.h and common/build-info.cpp.in of b11312. Type 0 is CPU."""


def library(host: Host, package: str) -> str | None:
    """Path of libllama in an installed ``llama_cpp`` package."""
    names = ("libllama.so", "libllama.dylib", "llama.dll")
    paths = (f"{package}/lib/{name}" for name in names)
    return next((path for path in paths if host.is_file(path)), None)


def ask(host: Host, path: str) -> tuple[str, dict[str, Any]]:
    """Why it does not answer (or nothing), and ``{"build", "gpu", "devices"}``; devices as text lines."""
    run = host.run((host.python, "-I", "-c", _SCRIPT, path), _TIMEOUT_S)
    lines = run.stdout.strip().splitlines()
    try:
        data = json.loads(lines[-1]) if lines and run.returncode == 0 else None
    except ValueError:
        data = None
    if not isinstance(data, dict):
        return run.problem or f"libllama does not answer: {clean(run.stderr[-300:]) or 'nothing said'}", {}
    return "", data
