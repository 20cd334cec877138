"""A real llama-server on this computer: started, asked, ended."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from time import sleep
from typing import Any, Final

from planner.facts.observed import Answer, Placement
from probes import child, engine_cause, sampling, server_http, server_log
from probes.child import Child
from probes.child_session import ChildSession, ready
from probes.engine_cause import Cause, Kind
from probes.host import Host
from probes.llama_build import ENVIRONMENT
from probes.ports import LOOPBACK, is_taken
from probes.server_events import CHAT, COMPLETION, Reading
from probes.server_http import Address, ServerError
from probes.session import STEP_S, Down, Question, Stopped, Tick
from probes.text import clean

Events = queue.Queue[tuple[float, dict[str, Any] | ServerError | None]]
_WAITING: Final = 256
"""Events that wait to be heard; more are left with the server."""
_GONE_S: Final = 2.0
"""What a dying server gets between its closed connection and its exit status."""


def open_server(
    host: Host, argv: tuple[str, ...], at: Address, limit_s: float, begun: Callable[[int], Tick]
) -> Server | Down | Stopped:
    """Start it and wait until it is ready.

    Args:
        argv: the whole command, ``--port`` included; the level of its log is added here.
        limit_s: what loading may take.
        begun: is told the process, and gives what watches the load.
    """
    if is_taken(at.port):
        return Down(Cause(Kind.PORT, f"port {at.port} is taken"))
    kills = sampling.oom_kills(host)
    process = child.start(host, (*argv, *server_log.LEVEL), ENVIRONMENT)
    if isinstance(process, str):
        return Down(Cause(Kind.OTHER, process))
    return ready(Server(host, process, at, kills), limit_s, begun(process.pid))


class Server(ChildSession):
    """A ``Session`` over HTTP."""

    def __init__(self, host: Host, process: Child, at: Address, kills: int) -> None:
        super().__init__(host, process, kills)
        self._at = at

    @property
    def url(self) -> str | None:
        return f"http://{LOOPBACK}:{self._at.port}"

    def _poll(self) -> Down | bool:
        down = self.alive()
        if down is not None:
            return down
        if server_http.health(self._at) and self.alive() is None:
            return True
        sleep(STEP_S / 5)
        return False

    def placement(self) -> Placement:
        """Buffers from the log; slots, context and build from ``/props``."""
        found = server_log.parse(self._process.lines())
        try:
            props = server_http.get(self._at, "/props")
        except ServerError:
            return found
        settings, slots, build = (props.get(n) for n in ("default_generation_settings", "total_slots", "build_info"))
        n_ctx = settings.get("n_ctx") if isinstance(settings, dict) else None
        return replace(
            found,
            build=clean(build) if isinstance(build, str) else None,
            n_ctx=n_ctx if type(n_ctx) is int else None,
            n_slots=slots if type(slots) is int else None,
        )

    def tokenize(self, text: str) -> tuple[int, ...] | Down:
        try:
            tokens = server_http.post(self._at, "/tokenize", {"content": text}).get("tokens")
        except ServerError as error:
            return self._broken(error)
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            return Down(Cause(Kind.OTHER, "/tokenize gave no tokens"))
        return tuple(tokens)

    def ask(self, question: Question, hear: Callable[[str], None], tick: Tick) -> Answer | Down | Stopped:
        path, body = _body(question)
        events: Events = queue.Queue(_WAITING)
        over = threading.Event()
        reading = Reading(self._host.clock(), question)
        threading.Thread(target=self._pump, args=(path, body, events, over), daemon=True).start()
        try:
            return self._heard(reading, events, hear, tick)
        finally:
            over.set()

    def _heard(
        self, reading: Reading, events: Events, hear: Callable[[str], None], tick: Tick
    ) -> Answer | Down | Stopped:
        while True:
            try:
                at_s, event = events.get(timeout=STEP_S)
            except queue.Empty:
                event = {}
                at_s = self._host.clock()
            if isinstance(event, ServerError):
                return self._broken(event)
            if event is None:
                return reading.answer() or self._broken(ServerError("the answer has no timings"))
            if excess := reading.excess(event):
                return Down(Cause(Kind.OTHER, f"the server does not keep to what it was asked: {excess}"))
            if piece := reading.feed(event, at_s):
                hear(piece)
            if reason := tick(reading):
                return Stopped(reason, reading)

    def _pump(self, path: str, body: dict[str, Any], events: Events, over: threading.Event) -> None:
        """Events as they come, until nobody listens any more."""

        def put(event: dict[str, Any] | ServerError | None) -> bool:
            at_s = self._host.clock()
            while not over.is_set():
                with suppress(queue.Full):
                    events.put((at_s, event), timeout=STEP_S)
                    return True
            return False

        try:
            with closing(server_http.stream(self._at, path, body)) as stream:
                if all(put(event) for event in stream):
                    put(None)
        except ServerError as error:
            put(error)

    def _broken(self, error: ServerError) -> Down:
        """A broken answer most often means that the server is dying: its own words say more."""
        until = self._host.clock() + _GONE_S
        while self._process.status is None and self._host.clock() < until:
            sleep(STEP_S / 5)
        if down := self.alive():
            return down
        lines = self._process.lines()
        found = engine_cause.cause(None, (*lines, str(error)))
        if found.kind is Kind.MEMORY:
            return Down(found)
        return Down(Cause(Kind.OTHER, clean(str(error)), engine_cause.meaningful(lines)))


def _body(question: Question) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {"return_progress": True}
    if question.exact:
        body |= {"temperature": 0, "cache_prompt": False, "ignore_eos": True, "return_tokens": True}
    if question.chat:
        messages = [{"role": "user", "content": question.prompt}]
        return CHAT, body | {"messages": messages, "max_tokens": question.n_predict}
    prompt = list(question.prompt) if isinstance(question.prompt, tuple) else question.prompt
    return COMPLETION, body | {"prompt": prompt, "n_predict": question.n_predict}
