"""Copy rates of one CUDA device through the driver library, in a process of its own. Standard library only.

``script_cuda.py ORDINAL SECONDS`` prints one JSON object: ``free_bytes``, ``pinned``, ``pageable`` and ``copy``
(lists of bytes per second; a device copy counts the bytes it reads and those it writes) and ``shared``, or
``{"absent": why}``, or ``{"died": why}`` when the device answers with an error. The context, and every byte of
device memory with it, ends with the process.

CUDA driver API 11 and later, cuda.h: the ``_v2`` entry points take 64-bit sizes.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
import time

MIB = 1 << 20
REPEATS = 5
TEST_BYTES = 256 * MIB
MOVED_BYTES = 128 * MIB
NO_DEVICE = 100
LIBRARIES = {"win32": ("nvcuda.dll",)}


class Died(Exception):
    """The driver refused a call on this device."""


class Cuda:
    """The driver library with errors as exceptions."""

    def __init__(self) -> None:
        names = LIBRARIES.get(sys.platform, ("libcuda.so.1", "libcuda.so"))
        for name in names:
            try:
                self._library = ctypes.CDLL(name)
                return
            except OSError:
                continue
        raise LookupError("the CUDA driver library does not load")

    def ask(self, name: str, *args: object) -> int:
        return int(getattr(self._library, name)(*args))

    def call(self, name: str, *args: object) -> None:
        code = self.ask(name, *args)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            raise Died(f"{name}: {(text.value or b'error').decode('utf-8', 'replace')} ({code})")


def memory_now() -> tuple[int, int]:
    """Bytes of our resident set, and bytes the system has available; zeros where ``/proc`` does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * mmap.PAGESIZE
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return resident, int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0, 0


def is_shared(cuda: Cuda, size: int) -> bool:
    """True if memory that is allocated and touched on the device is missing on the host, twice in a row."""
    if size < TEST_BYTES:
        return False
    moved = 0
    for _ in range(2):
        resident, available = memory_now()
        pointer = device_bytes(cuda, size)
        cuda.call("cuMemsetD8_v2", pointer, 1, ctypes.c_size_t(size))
        cuda.call("cuCtxSynchronize")
        grown, left = memory_now()
        cuda.call("cuMemFree_v2", pointer)
        moved += grown - resident >= MOVED_BYTES or available - left >= MOVED_BYTES
    return moved == 2


def device_bytes(cuda: Cuda, size: int) -> ctypes.c_uint64:
    pointer = ctypes.c_uint64()
    cuda.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    return pointer


def rates(cuda: Cuda, seconds: float, n_bytes: int, name: str, *args: object) -> list[float]:
    """Repeats of one copy, after two that are not counted; a repeat is as many copies as fill 20 ms."""

    def timed(n: int) -> float:
        start = time.perf_counter()
        for _ in range(n):
            cuda.call(name, *args)
        cuda.call("cuCtxSynchronize")
        return time.perf_counter() - start

    timed(1)
    n = max(1, min(round(0.02 / max(timed(1), 1e-6)), 1000))
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < REPEATS and (not found or time.perf_counter() < end):
        found.append(n * n_bytes / timed(n))
    return found


def open_device(cuda: Cuda, ordinal: int) -> None:
    """A context on the device. Raises LookupError where there is none of that number."""
    code = cuda.ask("cuInit", 0)
    if code == NO_DEVICE:
        raise LookupError("the CUDA driver lists no device")
    if code:
        cuda.call("cuInit", 0)
    count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    if ordinal >= count.value:
        raise LookupError(f"the CUDA driver lists {count.value} devices")
    cuda.call("cuDeviceGet", ctypes.byref(device), ordinal)
    cuda.call("cuCtxCreate_v2", ctypes.byref(context), 0, device)


def measure(ordinal: int, seconds: float) -> dict[str, object]:
    cuda = Cuda()
    open_device(cuda, ordinal)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    size = min(TEST_BYTES, free.value // 4) & -MIB
    if size < 16 * MIB:
        return {"absent": f"only {free.value // MIB} MiB of its memory are free"}
    shared, length, part = is_shared(cuda, size), ctypes.c_size_t(size), seconds / 3
    target, second = device_bytes(cuda, size), device_bytes(cuda, size)
    pageable = mmap.mmap(-1, size)
    source = ctypes.addressof(ctypes.c_char.from_buffer(pageable))
    ctypes.memset(source, 1, size)
    found: dict[str, object] = {"free_bytes": free.value, "shared": shared}
    found["pageable"] = rates(cuda, part, size, "cuMemcpyHtoD_v2", target, ctypes.c_void_p(source), length)
    pinned = ctypes.c_void_p()
    if cuda.ask("cuMemHostAlloc", ctypes.byref(pinned), length, 0) == 0:
        ctypes.memset(pinned, 1, size)
        found["pinned"] = rates(cuda, part, size, "cuMemcpyHtoD_v2", target, pinned, length)
    found["copy"] = rates(cuda, part, 2 * size, "cuMemcpyDtoD_v2", second, target, length)
    return found


def main() -> None:
    try:
        answer = measure(int(sys.argv[1]), float(sys.argv[2]))
    except LookupError as error:
        answer = {"absent": str(error)}
    except Died as error:
        answer = {"died": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
