"""The one door to the machine: files, commands, libraries, clock. Only this module starts processes.

``LocalHost`` is the machine in front of us; ``probes.recorded.RecordedHost`` is its twin on a saved tree.
"""

from __future__ import annotations

import glob
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from planner.facts.machine import Os
from probes import nvml_library
from probes.commands import CompletedRun as CompletedRun
from probes.commands import Heard, Reader, Started
from probes.environment import environment

MAX_TEXT: Final = 4 << 20
STALE_S: Final = 60.0
_KERNEL: Final = ("/proc/", "/sys/", "/dev/")
_SYSTEMS: Final = {"win32": Os.WINDOWS, "darwin": Os.MACOS}


class Host(Protocol):
    """What probes may ask of a machine. No method raises for something that is not there."""

    @property
    def os(self) -> Os: ...

    @property
    def python(self) -> str:
        """The interpreter that moeplan runs under."""

    def read_text(self, path: str) -> str | None:
        """Content of a small file, at most ``MAX_TEXT`` bytes, undecodable bytes replaced; None if unreadable."""

    def exists(self, path: str) -> bool: ...

    def is_file(self, path: str) -> bool: ...

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Paths that match, sorted."""

    def real_path(self, path: str) -> str:
        """Absolute, symbolic links resolved."""

    def stamp(self, path: str) -> tuple[int, int] | None:
        """``(size in bytes, mtime in ns)`` of a file; None if there is none."""

    def env(self, name: str) -> str | None: ...

    def which(self, program: str) -> str | None: ...

    def package(self, name: str) -> str | None:
        """Folder of an installed Python package, found without importing it."""

    def library(self, name: str) -> Any | None:
        """An optional Python module (``psutil``, ``cpuinfo``, ``pynvml``); None if it cannot work here."""

    def run(
        self,
        argv: tuple[str, ...],
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        heard: Heard | None = None,
    ) -> CompletedRun:
        """Run a command to its end: no shell, no input, bounded output.

        Args: env: is added to ours, which goes without ``LLAMA_ARG_…``; heard: is told of both its streams.
        """

    def run_script(
        self, script: str, arguments: tuple[str, ...], timeout_s: float, heard: Heard | None = None
    ) -> CompletedRun:
        """Run ``probes/<script>`` in an isolated Python that ends with us, even if we are killed."""

    def start(self, argv: tuple[str, ...], env: Mapping[str, str] | None = None) -> Started | str:
        """Start a command in a process group of its own, without a shell; or why it did not start."""

    def cached(self, key: str) -> str | None:
        """Text kept from an earlier run under this key; None if there is none."""

    def keep(self, key: str, text: str) -> str:
        """Keep a text for later runs; a cache that cannot be written is no error, but is said: where, and why."""

    def clock(self) -> float:
        """Monotonic seconds."""


class LocalHost:
    """This machine.

    Args:
        root: where ``/proc``, ``/sys`` and ``/dev`` are looked up.
        cache_dir: where ``keep`` writes; default: the user's cache folder.
    """

    def __init__(self, root: str = "/", cache_dir: str | None = None) -> None:
        self._root = root.rstrip("/")
        self._cache_dir = cache_dir

    @property
    def os(self) -> Os:
        return _SYSTEMS.get(sys.platform, Os.LINUX)

    @property
    def python(self) -> str:
        return sys.executable

    def _at(self, path: str) -> str:
        return self._root + path if path.startswith(_KERNEL) else path

    def read_text(self, path: str) -> str | None:
        try:
            with open(self._at(path), "rb") as file:
                return file.read(MAX_TEXT).decode("utf-8", "replace")
        except (OSError, ValueError):
            return None

    def exists(self, path: str) -> bool:
        return os.path.exists(self._at(path))

    def is_file(self, path: str) -> bool:
        return os.path.isfile(self._at(path))

    def glob(self, pattern: str) -> tuple[str, ...]:
        full = self._at(pattern)
        cut = len(full) - len(pattern)
        return tuple(sorted(path[cut:] for path in glob.glob(full)))

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def stamp(self, path: str) -> tuple[int, int] | None:
        try:
            stat = os.stat(self._at(path))
        except (OSError, ValueError):
            return None
        return stat.st_size, stat.st_mtime_ns

    def env(self, name: str) -> str | None:
        return os.environ.get(name)

    def which(self, program: str) -> str | None:
        import shutil

        return shutil.which(program)

    def package(self, name: str) -> str | None:
        from importlib.util import find_spec

        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            return None
        return os.path.dirname(spec.origin) if spec is not None and spec.origin else None

    def library(self, name: str) -> Any | None:
        if name == "pynvml" and not nvml_library.loads():
            return None
        from importlib import import_module

        try:
            return import_module(name)
        except ImportError:
            return None

    def run(
        self,
        argv: tuple[str, ...],
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        heard: Heard | None = None,
    ) -> CompletedRun:
        return _run(argv, timeout_s, {**environment(), **(env or {})}, heard=heard)

    def start(self, argv: tuple[str, ...], env: Mapping[str, str] | None = None) -> Started | str:
        return _start(argv, {**environment(), **(env or {})})

    def run_script(
        self, script: str, arguments: tuple[str, ...], timeout_s: float, heard: Heard | None = None
    ) -> CompletedRun:
        folder = os.path.dirname(os.path.abspath(__file__))
        leash, path = os.path.join(folder, "leash.py"), os.path.join(folder, script)
        return _run((sys.executable, "-I", leash, path, *arguments), timeout_s, os.environ, leashed=True, heard=heard)

    def _cache_path(self, key: str) -> str:
        if self._cache_dir is None:
            from platformdirs import user_cache_dir

            self._cache_dir = user_cache_dir("moeplan", appauthor=False)
        return os.path.join(self._cache_dir, f"{key}.json")

    def cached(self, key: str) -> str | None:
        path = self._cache_path(key)
        return self.read_text(path) if os.path.isfile(path) else None  # a pipe would be waited for

    def keep(self, key: str, text: str) -> str:
        path = self._cache_path(key)
        part = f"{path}.{os.getpid()}-{time.monotonic_ns()}.part"
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _sweep(os.path.dirname(path))
            with open(part, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(part, path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(part)
            return f"{os.path.dirname(path)}: {error.strerror or error}"
        return ""

    def clock(self) -> float:
        return time.monotonic()


def _sweep(folder: str) -> None:
    """Remove what a process that was killed while it wrote left behind: parts over a minute old."""
    for part in glob.glob(os.path.join(glob.escape(folder), "*.part")):
        with suppress(OSError):
            if time.time() - os.stat(part).st_mtime > STALE_S:
                os.unlink(part)


def _run(
    argv: tuple[str, ...],
    timeout_s: float,
    env: Mapping[str, str],
    *,
    leashed: bool = False,
    heard: Heard | None = None,
) -> CompletedRun:
    """``leashed``: standard input is a pipe that we hold open and that ends when we do; its output alone is heard."""
    import subprocess

    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    try:
        source = pipe if leashed else null
        process = subprocess.Popen(argv, stdin=source, stdout=pipe, stderr=pipe, env=env, shell=False, **_group())
    except (OSError, ValueError) as e:
        return CompletedRun(None, problem=f"could not start: {getattr(e, 'strerror', None) or e}")
    problem = ""
    try:
        readers = [Reader(process.stdout, heard), Reader(process.stderr, None if leashed else heard)]
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        problem = f"did not end within {max(round(timeout_s, 1), 0.1):g} s"
    finally:
        _end_group(process.pid)
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
    stdout, stderr = (reader.text() for reader in readers)
    return CompletedRun(None if problem else process.returncode, stdout, stderr, problem)


def _group() -> dict[str, Any]:
    """Arguments that put a command into a group of its own: what the terminal sends does not reach it."""
    if sys.platform == "win32":
        import subprocess

        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"start_new_session": True}


def _start(argv: tuple[str, ...], env: Mapping[str, str]) -> Started | str:
    import subprocess

    class Running(subprocess.Popen[bytes]):
        def end(self) -> int:
            _end_group(self.pid)
            self.kill()
            return self.wait()

    pipe, out = subprocess.PIPE, subprocess.STDOUT
    try:
        return Running(argv, stdin=pipe, stdout=pipe, stderr=out, env=env, shell=False, **_group())
    except (OSError, ValueError) as e:
        return f"could not start: {getattr(e, 'strerror', None) or e}"


def _end_group(pid: int) -> None:
    """End whatever is left of the command's process group, so that no child outlives the call."""
    if sys.platform == "win32":
        import subprocess

        null = subprocess.DEVNULL
        subprocess.run(("taskkill", "/F", "/T", "/PID", str(pid)), stdin=null, stdout=null, stderr=null, check=False)
        return
    import signal

    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
