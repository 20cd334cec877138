"""Whether NVML is there at all: pynvml alone says it only by failing."""

from __future__ import annotations

import sys


def loads() -> bool:
    """Whether the driver's library can be loaded."""
    import ctypes

    names = ("nvml.dll",) if sys.platform == "win32" else ("libnvidia-ml.so.1",)
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError:
            return False
    return True
