"""K:V cache type pairs whose attention stays on the GPU, by build and backend.

Mirrors ``supports_op`` for FLASH_ATTN_EXT: ggml-cuda/fattn.cu ``ggml_cuda_fattn_kv_type_supported``,
ggml-vulkan.cpp and ggml-metal-device.m, all of b11312. For builds whose rule was not read, only the pairs
that every default build has compiled since 2024.
"""

from __future__ import annotations

from typing import Final

_READ_FROM: Final = 11312
_CUDA: Final = ("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
_VULKAN: Final = (*_CUDA, "iq4_nl")
_METAL: Final = ("f32", "f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
_ALWAYS: Final = ("f16:f16", "q4_0:q4_0", "q8_0:q8_0")


def pairs(build: int | None, backends: tuple[str, ...]) -> tuple[str, ...]:
    """Pairs that every one of the backends keeps on the device; empty without a GPU backend.

    A remote device (``rpc``) follows the build at the other end, which is not known: it adds nothing.
    """
    each = [_of(build, backend) for backend in backends if backend not in ("cpu", "rpc")]
    return tuple(pair for pair in each[0] if all(pair in others for others in each[1:])) if each else ()


def _of(build: int | None, backend: str) -> tuple[str, ...]:
    if build is None or build < _READ_FROM:
        return _ALWAYS
    if backend in ("cuda", "rocm"):
        return tuple(f"{k}:{v}" for k in _CUDA for v in _CUDA)
    if backend == "vulkan":
        return tuple(f"{k}:{v}" for k in _VULKAN for v in _VULKAN if (k == "bf16") == (v == "bf16"))
    if backend == "metal":
        return tuple(f"{kind}:{kind}" for kind in _METAL)
    return _ALWAYS
