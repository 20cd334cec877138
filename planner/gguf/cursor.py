"""A forward-only view of a header: one window of bytes, bounds checked before anything is allocated."""

from __future__ import annotations

import hashlib
import re
import struct
from typing import Final

from planner.errors import ModelFileError
from planner.gguf.names import printable
from planner.gguf.source import ByteSource

WINDOW: Final = 1 << 20
"""Bytes read at once, and the longest single value that ``take`` returns."""
HEADER_CAP: Final = 256 << 20
"""A header must end before this byte. The largest tokenizers take about 40 MB."""
STRING_CAP: Final = 1 << 21
"""Most array strings in one file: 0.1 s to skip. The largest vocabularies with merges hold 0.8 million."""
KEPT_CAP: Final = 32 << 20
"""Memory that the kept values of one file may take, as Python objects."""
CUT: Final = "the file is cut or damaged: download it again"

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

_RUN: Final = 256
_SHORT_RUN: Final = re.compile(
    b"(?:%s){%d}+" % (b"|".join(re.escape(bytes((n, *bytes(7)))) + b".{%d}" % n for n in range(1, 48)), _RUN), re.DOTALL
)
"""So many strings of 1 to 47 bytes with their lengths: nearly all of a vocabulary, at half the time of one by one."""


class Cursor:
    """Reads on from byte 0. Every method raises ``ModelFileError`` where the file ends too early.

    ``digest`` covers what was parsed; skipped contents count with their length only.
    """

    def __init__(self, source: ByteSource) -> None:
        self.subject = source.subject
        self._source = source
        self._base, self._buf, self._pos = 0, b"", 0
        self._unhashed = 0
        self._hash = hashlib.sha256()
        self._strings_left, self._kept_left = STRING_CAP, KEPT_CAP

    @property
    def offset(self) -> int:
        return self._base + self._pos

    @property
    def remaining(self) -> int:
        return self._source.size - self.offset

    def digest(self) -> str:
        self._settle()
        return self._hash.hexdigest()

    def u32(self, what: str) -> int:
        self._need(4, what)
        value: int = _U32.unpack_from(self._buf, self._pos)[0]
        self._pos += 4
        return value

    def u64(self, what: str) -> int:
        self._need(8, what)
        value: int = _U64.unpack_from(self._buf, self._pos)[0]
        self._pos += 8
        return value

    def take(self, n: int, what: str) -> bytes:
        """The next ``n`` bytes (at most ``WINDOW``)."""
        self._need(n, what)
        raw = self._buf[self._pos : self._pos + n]
        self._pos += n
        return raw

    def unpack(self, code: struct.Struct, what: str) -> tuple[int | float | bool, ...]:
        """The values of ``code`` (at most ``WINDOW`` bytes)."""
        self._need(code.size, what)
        values = code.unpack_from(self._buf, self._pos)
        self._pos += code.size
        return values

    def string(self, cap: int, what: str) -> bytes | None:
        """A length-prefixed string; None if it is longer than ``cap`` bytes and was skipped."""
        n = self.u64(f"the length of {what}")
        self._within(n, what)
        if n > cap:
            self.skip(n, what)
            return None
        return self.take(n, what)

    def keep(self, n_bytes: int) -> None:
        """Account for values that stay in memory."""
        self._kept_left -= n_bytes
        if self._kept_left < 0:
            raise self._error("a header whose short values fit in 32 MiB", "more than that")

    def skip(self, n: int, what: str) -> None:
        """Pass over ``n`` bytes without reading those beyond the window."""
        self._within(n, what)
        self._settle()
        self._pos += n
        self._unhashed = self._pos

    def skip_strings(self, count: int, what: str) -> None:
        """Pass over ``count`` length-prefixed strings, about 0.1 µs each: runs of short ones at once."""
        self._within(8 * count, what)
        self._strings_left -= count
        if self._strings_left < 0:
            raise self._error(f"at most {STRING_CAP:,} strings in the arrays of a header", f"{what} with more")
        unpack = _U64.unpack_from
        while count:
            self._need(8, what)
            buf, pos, passed = self._buf, self._pos, 0
            while count >= _RUN and (run := _SHORT_RUN.match(buf, pos)):
                pos, count = run.end(), count - _RUN
            few = min(count, _RUN)
            try:
                for passed in range(few):  # noqa: B007  # strings passed, should the next one run off the window
                    pos += 8 + unpack(buf, pos)[0]
                passed = few
            except (struct.error, OverflowError, IndexError):
                pass
            self._pos, count = pos, count - passed
            if self.remaining < 0:
                raise self._error(f"{what} within the file", f"a string that ends {-self.remaining:,} bytes after it")

    def _within(self, n: int, what: str) -> None:
        if n > self.remaining:
            raise self._truncated(n, what)

    def _need(self, n: int, what: str) -> None:
        """Make the next ``n`` bytes available in the window."""
        if self._pos + n <= len(self._buf):
            return
        if n > self.remaining:
            raise self._truncated(n, what)
        if self.offset + n > HEADER_CAP:
            raise self._error(f"a header of at most {HEADER_CAP:,} bytes", f"{what} at byte {self.offset:,}")
        self._settle()
        self._base, self._pos, self._unhashed = self.offset, 0, 0
        self._buf = self._source.read_at(self._base, max(n, WINDOW))
        if len(self._buf) < n:
            raise self._truncated(n, what)

    def _settle(self) -> None:
        """Hash what was parsed since the last time."""
        self._hash.update(memoryview(self._buf)[self._unhashed : self._pos])
        self._unhashed = self._pos

    def _truncated(self, n: int, what: str) -> ModelFileError:
        return self._error(
            f"{n:,} bytes for {printable(what)} at byte {self.offset:,}",
            f"{max(self.remaining, 0):,} before the end of the file",
            CUT,
        )

    def _error(self, expected: str, found: str, advice: str = "") -> ModelFileError:
        return ModelFileError(self.subject, expected=expected, found=found, advice=advice)
