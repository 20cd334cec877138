"""Where the bytes of a GGUF come from: a regular file. ``http_source`` has the other one."""

from __future__ import annotations

import os
import stat
from typing import Protocol

from planner.errors import ModelFileError
from planner.gguf.names import printable


class ByteSource(Protocol):
    """Random access to a file of known length.

    Attributes:
        subject: the path or URL, safe to print.
        size: length in bytes.
    """

    subject: str
    size: int

    def read_at(self, offset: int, n: int) -> bytes:
        """At most ``n`` bytes from ``offset`` on; fewer only at the end of the file.

        Raises:
            ModelFileError: the bytes cannot be read.
        """

    def close(self) -> None: ...


_KINDS = (
    (stat.S_ISDIR, "a directory", "name the .gguf file inside it"),
    (stat.S_ISFIFO, "a named pipe", ""),
    (stat.S_ISSOCK, "a socket", ""),
    (stat.S_ISCHR, "a character device", ""),
    (stat.S_ISBLK, "a block device", ""),
)


class FileSource:
    """A regular file, opened only after ``stat`` says so: a pipe or a device never blocks.

    Raises:
        ModelFileError: missing, not a regular file, or not readable.
    """

    def __init__(self, path: str) -> None:
        self.subject = printable(path, 4096)
        try:
            self._check(os.stat(path))
            flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
            self._fd = os.open(path, flags)
        except FileNotFoundError:
            raise self._error("no such file", "check the path") from None
        except (OSError, ValueError) as error:
            raise self._error(_reason(error)) from None
        info = os.fstat(self._fd)
        try:
            self._check(info)
        except ModelFileError:
            self.close()
            raise
        self.size = info.st_size

    def _error(self, found: str, advice: str = "") -> ModelFileError:
        return ModelFileError(self.subject, expected="a GGUF file", found=found, advice=advice)

    def _check(self, info: os.stat_result) -> None:
        if not stat.S_ISREG(info.st_mode):
            kind, advice = next(
                ((text, advice) for test, text, advice in _KINDS if test(info.st_mode)),
                ("a special file", ""),
            )
            raise self._error(kind, advice)

    def read_at(self, offset: int, n: int) -> bytes:
        try:
            os.lseek(self._fd, offset, os.SEEK_SET)
            parts = []
            while n > 0 and (part := os.read(self._fd, n)):
                parts.append(part)
                n -= len(part)
        except OSError as error:
            raise self._error(f"a read error at byte {offset}: {_reason(error)}") from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        os.close(self._fd)


def _reason(error: OSError | ValueError) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return printable(text or str(error)).lower()
