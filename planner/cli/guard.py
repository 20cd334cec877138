"""Where a command ends: exit codes, error text, and streams that may be gone.

0 done, 1 refused, 2 usage, 3 could not read or measure, 130 interrupted. A pipe that closes early is no error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TextIO

import typer

from planner.errors import STARVED, Ended, MoeplanError, starved

REPORT_TO = "run it again with MOEPLAN_DEBUG=1 and report the output"


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with every failure turned into one message and an exit code."""

    @wraps(command)
    def call(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except MoeplanError as error:
            complain(str(error))
            raise typer.Exit(error.exit_code) from error
        except (KeyboardInterrupt, Ended):
            raise typer.Exit(130) from None
        except typer.Exit:
            raise
        except OSError as error:
            raise typer.Exit(lost(error)) from error
        except Exception as error:
            if os.environ.get("MOEPLAN_DEBUG"):
                raise
            if starved(error):
                complain(STARVED)
                raise typer.Exit(3) from error
            complain(f"a defect of moeplan: {type(error).__name__}: {error} ({REPORT_TO})")
            raise typer.Exit(3) from error

    return call


def there(stream: Any, mode: str) -> Any:
    """The stream, or what stands for one that was closed before we began (``>&-``): notes go nowhere, and a product
    that cannot be written fails as on a full disk (a file opened to read takes no text)."""
    return open(os.devnull, mode, encoding="utf-8") if stream is None else stream


def product(text: str) -> None:
    """Write what was asked for to stdout."""
    _write(sys.stdout, text if text.endswith("\n") else text + "\n")


def piece(stream: TextIO | None, text: str) -> None:
    """Part of a text that comes in pieces, shown at once."""
    _write(stream, printable(text))


def complain(text: str) -> None:
    """One error message on stderr."""
    note(f"moeplan: {text}")


def note(text: str) -> None:
    """Progress or a remark on stderr."""
    _write(sys.stderr, printable(text) + "\n")


def printable(text: str) -> str:
    """``text`` with what could steer a terminal spelled out; line ends stay."""
    from emit.wording import clean

    return "\n".join(clean(line) for line in text.split("\n"))


def lost(error: OSError) -> int:
    """A stream that takes no more: a closed pipe is no error, a full disk is. The exit code."""
    for stream in (sys.stdout, sys.stderr):
        _abandon(stream)
    if isinstance(error, BrokenPipeError):
        return 0
    return 3


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _abandon(stream)
    except OSError as error:
        _abandon(stream)
        if stream is sys.stdout:
            complain(f"stdout: {error.strerror or error}")
            raise typer.Exit(3) from error


def _abandon(stream: TextIO | None) -> None:
    """What is still buffered goes nowhere, so that the interpreter's last flush is silent."""
    try:
        stream.flush()  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
