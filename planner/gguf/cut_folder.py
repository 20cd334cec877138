"""A temporary folder that does not outlive its process: removed on return, error, Ctrl-C and SIGTERM.

After SIGKILL the next call finds it: a folder's name holds the process, a lock in it says whether that still runs.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Final

from planner.signals import ended_raised

PREFIX: Final = "moeplan-cut-"
_LOCK: Final = "lock"
_GRACE_S: Final = 60.0
"""A folder this young may not have its lock yet."""


def base_folder() -> str:
    """``$TMPDIR``, else ``/var/tmp`` (a disk, where ``/tmp`` may be memory), else the system's choice."""
    import tempfile

    if not os.environ.get("TMPDIR") and os.name == "posix" and os.access("/var/tmp", os.W_OK | os.X_OK):
        return "/var/tmp"
    return tempfile.gettempdir()


def free_bytes(base: str) -> int:
    return shutil.disk_usage(base).free


@contextmanager
def cut_folder(base: str) -> Iterator[str]:
    """A folder inside ``base`` for the time of the block; what earlier, killed processes left is removed first."""
    import tempfile

    remove_stale(base)
    with ended_raised():
        path = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=base)
        lock = None
        try:
            lock = _locked(os.path.join(path, _LOCK))
            yield path
        finally:
            if lock is not None:
                lock.close()
            shutil.rmtree(path, ignore_errors=True)


def remove_stale(base: str) -> None:
    """Remove folders of processes that are gone. Those of other users, and of running ones, stay."""
    with suppress(OSError):
        for entry in list(os.scandir(base)):
            if entry.name.startswith(PREFIX) and _is_stale(entry.path):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_stale(path: str) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISDIR(info.st_mode) or (hasattr(os, "getuid") and info.st_uid != os.getuid()):
        return False
    number = os.path.basename(path).removeprefix(PREFIX).partition("-")[0]
    if os.name == "posix" and number.isdigit() and not _runs(int(number)):
        return True
    return time.time() - info.st_mtime > _GRACE_S and _is_free(os.path.join(path, _LOCK))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _locked(path: str) -> IO[bytes]:
    """The lock file, held open; on POSIX locked as well. Windows keeps an open file from being removed."""
    file = open(path, "wb")  # noqa: SIM115  # held by the caller
    if sys.platform != "win32":
        import fcntl

        with suppress(OSError):  # a network file system without locks: the process number must do
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def _is_free(path: str) -> bool:
    if sys.platform == "win32":
        with suppress(FileNotFoundError):
            try:
                os.unlink(path)
            except PermissionError:
                return False
        return True
    import fcntl

    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
