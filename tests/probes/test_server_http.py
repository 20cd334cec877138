"""A server that keeps a connection open, or never comes to an end, costs a bounded time and a bounded memory."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from planner.facts.observed import Answer
from probes import server_http
from probes.host import LocalHost
from probes.server import Server
from probes.server_http import Address, ServerError
from probes.session import Down, Question

Serve = Callable[[Callable[[socket.socket], None]], Address]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Answers every connection as a test says."""
    listener = socket.create_server(("127.0.0.1", 0))

    def start(reply: Callable[[socket.socket], None]) -> Address:
        def one(wire: socket.socket) -> None:
            with wire, suppress(OSError):
                wire.recv(65536)
                reply(wire)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return Address(listener.getsockname()[1])

    yield start
    listener.close()


def dripping(head: bytes) -> Callable[[socket.socket], None]:
    def reply(wire: socket.socket) -> None:
        wire.sendall(head)
        while True:
            wire.sendall(b"a")
            time.sleep(0.05)

    return reply


@pytest.mark.parametrize("head", [b"", HEAD + b"X: ", HEAD + b"Content-Length: 9999\r\n\r\n"])
def test_an_answer_in_drops_is_cut_off(serve: Serve, head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    at = serve(dripping(head))
    monkeypatch.setattr(server_http, "SHORT_S", 0.5)
    for ask in (lambda: server_http.get(at, "/props"), lambda: server_http.post(at, "/tokenize", {}, 0.5)):
        start = time.monotonic()
        with pytest.raises(ServerError, match="no whole answer within"):
            ask()
        assert time.monotonic() - start < 5
    assert not server_http.health(at)


def test_a_whole_answer_is_taken(serve: Serve) -> None:
    at = serve(lambda wire: wire.sendall(HEAD + b'Content-Length: 9\r\n\r\n{"a": 12}'))
    assert server_http.health(at) and server_http.get(at, "/props") == {"a": 12}
    assert server_http.post(at, "/tokenize", {}) == {"a": 12}


@pytest.mark.parametrize("body", [b"[]", b'{"a": ['])
def test_an_answer_that_is_no_object_is_named(serve: Serve, body: bytes) -> None:
    at = serve(lambda wire: wire.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body))
    for ask in (lambda: server_http.get(at, "/props"), lambda: server_http.post(at, "/tokenize", {})):
        with pytest.raises(ServerError, match="answered no JSON object of up to 8 MiB"):
            ask()


class Alive:
    status, pid = None, 1

    def lines(self) -> tuple[str, ...]:
        return ()


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (b'data: {"content": "a", "tokens": [1]}\n\n', "more came than the 16 tokens"),
        (b'data: {"content": "a"}\n\n', "more came than the 16 tokens"),
        (b'data: {"content": "' + b"a" * (1 << 20) + b'"}\n\n', "characters came for 16 tokens"),
        (b'data: {"content": "' + b"a" * (5 << 20) + b'"}\n\n', "over 4 MiB"),
    ],
)
def test_an_endless_answer_is_left(serve: Serve, event: bytes, words: str) -> None:
    sent = threading.Event()

    def reply(wire: socket.socket) -> None:
        try:
            wire.sendall(HEAD + b"\r\n")
            while True:
                wire.sendall(event)
        finally:
            sent.set()

    process: Any = Alive()
    server = Server(LocalHost(), process, serve(reply), 0)
    found = server.ask(Question("Why?", 16, chat=True), lambda piece: None, lambda reading: "")
    assert isinstance(found, Down) and words in found.cause.text
    assert sent.wait(5), "the connection is still read"


def test_the_clock_is_read_before_anything_can_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pump that was done before its asker went on saw a first token 0.06 s before the question."""

    class Ahead:
        def __init__(self, target: Callable[..., None], args: tuple[Any, ...], daemon: bool) -> None:
            self.start = lambda: target(*args)

    def stream(at: Address, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"content": "a", "tokens": [1]}
        time.sleep(0.02)
        yield {"content": "", "timings": {"prompt_n": 1, "prompt_ms": 1.0, "predicted_n": 1, "predicted_ms": 1.0}}

    monkeypatch.setattr("probes.server.threading.Thread", Ahead)
    monkeypatch.setattr(server_http, "stream", stream)
    process: Any = Alive()
    server = Server(LocalHost(), process, Address(1), 0)
    found = server.ask(Question((1,), 16, exact=True), lambda piece: None, lambda reading: "")
    assert isinstance(found, Answer) and found.first_s >= 0


def test_a_server_that_counts_too_much_gives_no_answer(serve: Serve) -> None:
    timings = b'{"prompt_n": 1000000000, "prompt_ms": 1.0, "predicted_n": 16, "predicted_ms": 1.0}'
    at = serve(lambda wire: wire.sendall(HEAD + b'\r\ndata: {"content": "a", "timings": ' + timings + b"}\n\n"))
    process: Any = Alive()
    found = Server(LocalHost(), process, at, 0).ask(
        Question((1, 2), 16, exact=True), lambda piece: None, lambda reading: ""
    )
    assert isinstance(found, Down)
    assert found.cause.text.startswith("the server does not keep to what it was asked: it counts 1,000,000,000 tokens")
