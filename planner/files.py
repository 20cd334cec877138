"""Files that a user names: read whole and small, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from planner.errors import MoeplanError, OutputError

MAX_JSON_BYTES: Final = 4 << 20


def check_output(path: str, keep: tuple[str | None, ...] = ()) -> None:
    """That ``write_file`` can be expected to write there, before long work whose outcome it is to hold.

    Raises:
        OutputError: as ``write_file`` does.
    """
    import tempfile

    target = Path(path)
    try:
        _check_kept(target, keep)
        if target.exists() and not target.is_file():
            if target.is_dir() or not os.access(target, os.W_OK):
                raise OutputError(path, expected="a file to write", found="a folder" if target.is_dir() else "no right")
            return
        tempfile.TemporaryFile(dir=target.resolve().parent).close()
    except OSError as error:
        raise OutputError(path, found=error.strerror or str(error)) from error
    except RuntimeError as error:  # Path.resolve before Python 3.13
        raise OutputError(path, expected="a file to write", found=_LOOP) from error


_LOOP: Final = "a symbolic link that leads to itself"


def _check_kept(target: Path, keep: tuple[str | None, ...]) -> None:
    if any(name is not None and target.exists() and Path(name).exists() and target.samefile(name) for name in keep):
        raise OutputError(str(target), expected="a file to write", found="an input of this very command")


def write_file(path: str, content: str | bytes, keep: tuple[str | None, ...] = ()) -> None:
    """Write a rendering to a file that a user named: the whole of it, or nothing.

    Args:
        content: text goes out as UTF-8.
        keep: files that must not be overwritten, the model above all.

    Raises:
        OutputError: it is one of ``keep``, no regular file, or cannot be written.
    """
    import tempfile

    target = Path(path)
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    try:
        _check_kept(target, keep)
        if target.exists() and not target.is_file():
            target.write_bytes(data)  # a device such as /dev/stderr
            return
        descriptor, part = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.resolve().parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
            mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
            os.chmod(part, mode)
            os.replace(part, target.resolve())
        except BaseException:
            os.unlink(part)
            raise
    except OSError as error:
        raise OutputError(path, found=error.strerror or str(error)) from error
    except RuntimeError as error:  # Path.resolve before Python 3.13
        raise OutputError(path, expected="a file to write", found=_LOOP) from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def text_of(path: str, kind: type[MoeplanError]) -> str:
    """The text of a small regular file that a user named. Raises ``kind``."""
    try:
        return bytes_of(path, kind, MAX_JSON_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise kind(path, expected="UTF-8 text", found=f"another byte at {error.start}") from error


def bytes_of(path: str, kind: type[MoeplanError], most: int, *, cut: bool = False) -> bytes:
    """The content of a regular file that a user named, or with ``cut`` its first ``most`` bytes. Raises ``kind``.

    A file whose size is 0 is not opened: reading ``/proc/kmsg``, which has that size, never ends.
    """
    file = Path(path)
    try:
        if not file.is_file():
            found = "a folder or device" if file.exists() else "nothing there"
            raise kind(path, expected="a file", found=found)
        size = file.stat().st_size
        if size > most and not cut:
            raise kind(path, expected=f"at most {most} bytes", found=str(size))
        if not size:
            return b""
        with file.open("rb") as stream:
            return stream.read(min(most, size))  # a buffer for all of it is made first
    except OSError as error:
        raise kind(path, found=error.strerror or str(error)) from error
