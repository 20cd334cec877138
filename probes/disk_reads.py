"""Positioned reads of one file that the page cache does not answer. Opens nothing for writing.

Linux: ``O_DIRECT`` (open(2)); macOS: ``F_NOCACHE`` (fcntl(2)). Where the file system refuses, reads go through
the page cache, whose pages are dropped first (``POSIX_FADV_DONTNEED``); ``is_cold`` asks ``mincore(2)`` whether
that worked. Buffers come from ``mmap``, so they are aligned to pages, and offsets are multiples of ``ALIGN``.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

ALIGN: Final = 4096
FOLIO: Final = 4 << 20
"""Page cache comes in folios of at most this size (``MAX_PAGECACHE_ORDER``, include/linux/pagemap.h)."""
HANG_S: Final = 10.0
"""A read that takes longer is given up."""
_F_NOCACHE: Final = 48
_PROT_READ: Final = 1
_MAP_SHARED: Final = 1
_FAILED: Final = ctypes.c_void_p(-1).value


class ReadHang(Exception):
    """A read did not come back."""


class ModelFile:
    """One file, open for measuring.

    Args:
        path: a regular file.

    Raises:
        OSError: it cannot be opened.
        ValueError: this system has no positioned reads that could be measured.
    """

    def __init__(self, path: str) -> None:
        if not hasattr(os, "preadv"):
            raise ValueError("direct reads are not measured on this system")
        self._plain = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        stat = os.fstat(self._plain)
        self.size, self.held_bytes = stat.st_size, min(stat.st_blocks * 512, stat.st_size)
        self.method = "buffered, cache dropped"
        self._fd = self._plain
        with suppress(OSError):
            self._go_direct(path)
        self.direct = self._fd != self._plain
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_longlong)
        self._libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        self._libc.memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

    def _go_direct(self, path: str) -> None:
        """Take a direct descriptor if it opens, reads, and reads the same bytes: some FUSE programs fail at that."""
        if sys.platform == "darwin":
            import fcntl

            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.fcntl(fd, _F_NOCACHE, 1)
            self._fd, self.method = fd, "F_NOCACHE"
            return
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
        at = self.size // 2 & -ALIGN
        page = mmap.mmap(-1, ALIGN)
        try:
            same = os.preadv(fd, [page], at) and page[:] == os.pread(self._plain, ALIGN, at).ljust(ALIGN, b"\0")
        except OSError:
            same = False
        if same:
            self._fd, self.method = fd, "O_DIRECT"
        else:
            os.close(fd)

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in {self._fd, self._plain}:
            os.close(fd)

    def is_data(self, offset: int, length: int) -> bool:
        """False if a part of the range is a hole, which no disk is asked for (lseek(2); ENXIO: no data follows)."""
        try:
            start = os.lseek(self._plain, offset, os.SEEK_DATA)
            return start == offset and os.lseek(self._plain, offset, os.SEEK_HOLE) >= offset + length
        except OSError as error:
            return error.errno != errno.ENXIO and self.held_bytes * 10 >= self.size * 9

    def drop(self, offset: int, length: int) -> None:
        """Ask the kernel to forget clean cached pages of the range, out to whole folios: a part of one stays."""
        start = offset & -FOLIO
        with suppress(OSError, AttributeError):
            os.posix_fadvise(self._plain, start, -(-(offset + length) // FOLIO) * FOLIO - start, os.POSIX_FADV_DONTNEED)

    def is_cold(self, offset: int, length: int) -> bool:
        """True if no page of the range is in the page cache."""
        at = self._map(offset, length)
        pages = -(-length // mmap.PAGESIZE)
        resident = ctypes.create_string_buffer(pages)
        known = self._libc.mincore(at, length, resident) == 0
        self._libc.munmap(at, length)
        return known and not any(byte & 1 for byte in resident.raw[:pages])

    def _map(self, offset: int, length: int) -> int:
        at = self._libc.mmap(None, length, _PROT_READ, _MAP_SHARED, self._plain, offset)
        if at in (None, _FAILED):
            raise OSError(ctypes.get_errno(), "mmap")
        return int(at)

    def read_rate(self, offsets: Sequence[int], block: int, lanes: int, seconds: float) -> float | None:
        """Bytes per second of ``lanes`` threads that read blocks at ``offsets`` until these or the time end."""

        def lane(take: Iterator[int], end: float) -> int:
            done, buffer = 0, mmap.mmap(-1, block)
            while time.monotonic() < end and (offset := next(take, None)) is not None:
                done += os.preadv(self._fd, [buffer], offset)
            return done

        return _timed(lane, offsets, lanes, seconds)

    def touch_rate(self, offsets: Sequence[int], block: int, lanes: int, seconds: float) -> float | None:
        """The same through a mapping, page fault by page fault with the kernel's read-ahead."""

        def lane(take: Iterator[int], end: float) -> int:
            done, scratch = 0, ctypes.create_string_buffer(block)
            while time.monotonic() < end and (offset := next(take, None)) is not None:
                at = self._map(offset, block)
                self._libc.memcpy(scratch, at, block)
                self._libc.munmap(at, block)
                done += block
            return done

        return _timed(lane, offsets, lanes, seconds)


class _Shared:
    """One iterator for several threads, until it is closed."""

    def __init__(self, items: Sequence[int]) -> None:
        self._items, self._lock = iter(items), threading.Lock()

    def close(self) -> None:
        with self._lock:
            self._items = iter(())

    def __iter__(self) -> _Shared:
        return self

    def __next__(self) -> int:
        with self._lock:
            return next(self._items)


def _timed(
    lane: Callable[[Iterator[int], float], int], offsets: Sequence[int], lanes: int, seconds: float
) -> float | None:
    """Bytes per second over all lanes; None if nothing was read.

    Raises:
        ReadHang: a lane did not end.
        OSError: a read failed.
    """
    shared, gate = _Shared(offsets), threading.Barrier(lanes + 1)
    done: list[int] = []
    failed: list[Any] = []

    def work() -> None:
        gate.wait()
        try:
            done.append(lane(shared, time.monotonic() + seconds))
        except OSError as error:
            failed.append(error)

    team = [threading.Thread(target=work, daemon=True) for _ in range(lanes)]
    for thread in team:
        thread.start()
    gate.wait()
    start = time.monotonic()
    try:
        for thread in team:
            thread.join(seconds + HANG_S)
    finally:
        shared.close()  # the file may be closed before a lane that hangs, or outlives an interrupt, is done
    took = time.monotonic() - start
    if len(done) + len(failed) < lanes:
        raise ReadHang
    if failed:
        raise failed[0]
    return sum(done) / took if sum(done) else None
