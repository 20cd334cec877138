"""Questions to a llama-server on this computer, over HTTP (tools/server/README.md, b11549)."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from probes.ports import LOOPBACK

MAX_BODY: Final = 8 << 20
MAX_EVENT: Final = 4 << 20
"""Of one line: the last event of ``/completion`` repeats the prompt."""
SHORT_S: Final = 5.0


class ServerError(Exception):
    """A question that got no usable answer: the connection broke, or the server refused it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens on this computer, and the key it wants (``--api-key``); None without one."""

    port: int
    key: str | None = None


def health(at: Address) -> bool:
    """Whether it is ready: 200 from ``/health``; 503 while it loads, nothing before it listens."""
    try:
        return _get(at, "/health", 1.0)[0] == 200
    except ServerError:
        return False


def get(at: Address, path: str) -> dict[str, Any]:
    """A JSON object. Raises ServerError."""
    status, body = _get(at, path, SHORT_S)
    data = _object(body)
    if status != 200 or data is None:
        raise ServerError(_refusal(path, status, data))
    return data


def post(at: Address, path: str, question: dict[str, Any], timeout_s: float = 60.0) -> dict[str, Any]:
    """A JSON object in answer to one. Raises ServerError."""
    with _within(at, path, timeout_s) as connection:
        status, response = _ask(connection, at, path, question)
        data = _object(_read(response, MAX_BODY))
    if status != 200 or data is None:
        raise ServerError(_refusal(path, status, data))
    return data


def stream(at: Address, path: str, question: dict[str, Any]) -> Generator[dict[str, Any]]:
    """Every event of a streamed answer as it comes; blocks between them. How many may come is for the caller to say.

    Raises:
        ServerError: refused, broken off before its end, or a line without one.
    """
    connection = _connection(at, None)
    try:
        status, response = _ask(connection, at, path, question | {"stream": True})
        if status != 200:
            raise ServerError(_refusal(path, status, _object(_read(response, MAX_BODY))))
        while line := _line(response):
            if line.startswith(b"data: ") and (event := _object(line[6:])) is not None:
                if "error" in event:
                    raise ServerError(_refusal(path, status, event))
                yield event
    finally:
        connection.close()


def _connection(at: Address, timeout_s: float | None) -> Any:
    from http.client import HTTPConnection

    return HTTPConnection(LOOPBACK, at.port, timeout=timeout_s)


def _headers(at: Address) -> dict[str, str]:
    key = {} if at.key is None else {"Authorization": f"Bearer {at.key}"}
    return {"Content-Type": "application/json", **key}


def _get(at: Address, path: str, timeout_s: float) -> tuple[int, bytes]:
    from http.client import HTTPException

    with _within(at, path, timeout_s) as connection:
        try:
            connection.request("GET", path, headers=_headers(at))
            response = connection.getresponse()
            return response.status, _read(response, MAX_BODY)
        except (OSError, HTTPException) as error:
            raise ServerError(f"{path}: {error or type(error).__name__}") from error


@contextmanager
def _within(at: Address, path: str, seconds: float) -> Iterator[Any]:
    """A connection that is cut after so long: a timeout of its own holds for each receipt, so drops keep it open.

    Raises:
        ServerError: nothing listens, or it was cut, whatever had come by then.
    """
    import socket
    from threading import Event, Timer

    connection, late = _connection(at, seconds), Event()

    def cut(wire: socket.socket) -> None:
        late.set()
        with suppress(OSError):
            wire.shutdown(socket.SHUT_RDWR)

    try:
        connection.connect()
    except OSError as error:
        raise ServerError(f"{path}: {error or type(error).__name__}") from error
    timer = Timer(seconds, cut, (connection.sock,))
    timer.daemon = True
    timer.start()
    try:
        yield connection
    finally:
        timer.cancel()
        connection.close()
        if late.is_set():
            raise ServerError(f"{path}: no whole answer within {seconds:.0f} s")


def _ask(connection: Any, at: Address, path: str, question: dict[str, Any]) -> tuple[int, Any]:
    from http.client import HTTPException

    try:
        connection.request("POST", path, json.dumps(question), _headers(at))
        response = connection.getresponse()
    except (OSError, HTTPException) as error:
        raise ServerError(f"{path}: {error or type(error).__name__}") from error
    return response.status, response


def _read(response: Any, limit: int) -> bytes:
    from http.client import HTTPException

    try:
        return bytes(response.read(limit))
    except (OSError, HTTPException) as error:
        raise ServerError(f"the answer broke off: {error or type(error).__name__}") from error


def _line(response: Any) -> bytes:
    from http.client import HTTPException

    try:
        line = bytes(response.readline(MAX_EVENT))
    except (OSError, HTTPException, ValueError, AttributeError) as error:
        raise ServerError(f"the answer broke off: {error or type(error).__name__}") from error
    if len(line) >= MAX_EVENT:
        raise ServerError(f"the answer has a line of over {MAX_EVENT >> 20} MiB")
    return line


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _refusal(path: str, status: int, data: dict[str, Any] | None) -> str:
    error = (data or {}).get("error")
    message = error.get("message") if isinstance(error, dict) else error
    if status == 200 and data is None:
        return f"{path} answered no JSON object of up to {MAX_BODY >> 20} MiB"
    return f"{path} answered {status}" + (f": {message}" if isinstance(message, str) else "")
