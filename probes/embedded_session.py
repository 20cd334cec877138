"""The embedded engine as a session: llama-cpp-python in a process of its own, asked over its standard input.

It has no HTTP server, so it cannot go on serving. Settings of a device that need tensor overrides are left to
llama-server: the wheel that pip builds has no device.
"""

from __future__ import annotations

import json
import os
import queue
from collections.abc import Callable, Mapping
from typing import Any, Final

from planner.facts.observed import Answer, Placement
from probes import child, oracle_embedded, sampling, server_log
from probes.child import Child
from probes.child_session import ChildSession, ready
from probes.engine_cause import Cause, Kind
from probes.host import Host
from probes.llama_build import ENVIRONMENT
from probes.server_events import Reading
from probes.session import STEP_S, Down, Question, Stopped, Tick

MARK: Final = "@@"
TOKENIZE_S: Final = 30.0


def open_embedded(
    host: Host, path: str, settings: Mapping[str, Any], limit_s: float, begun: Callable[[int], Tick]
) -> EmbeddedSession | Down | Stopped:
    """Start it and wait until the model is loaded.

    Args:
        settings: fields of ``Settings`` by name; only plans without a device.
        limit_s: what loading may take.
        begun: is told the process, and gives what watches the load.
    """
    if settings["devices"]:
        return Down(
            Cause(Kind.OTHER, "the embedded engine verifies plans on the CPU alone: --llama names a llama-server")
        )
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "script_answer.py")
    job = json.dumps({"path": path, "model": _model(settings), "context": _context(settings)})
    events: queue.SimpleQueue[str] = queue.SimpleQueue()
    kills = sampling.oom_kills(host)
    process = child.start(host, (host.python, "-I", script, job), ENVIRONMENT, events.put)
    if isinstance(process, str):
        return Down(Cause(Kind.OTHER, process))
    return ready(EmbeddedSession(host, process, events, kills), limit_s, begun(process.pid))


def _model(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of ``llama_model_params`` (``common_model_params_to_llama``, common/common.cpp, b11312)."""
    mode = settings["load_mode"]
    return {
        "n_gpu_layers": 0,
        "load_mode": LOAD_MODES[mode],
        "use_extra_bufts": settings["repack"],
        "no_host": settings["no_host"],
    }


LOAD_MODES: Final = {"none": 0, "mmap": 1, "mlock": 2, "mmap+mlock": 3, "dio": 4}
"""``enum llama_load_mode``, include/llama.h, b11312."""


def _context(settings: Mapping[str, Any]) -> dict[str, Any]:
    threads = {name: settings[s] for name, s in (("n_threads", "threads"), ("n_threads_batch", "threads_batch"))}
    return oracle_embedded.context_fields(settings) | {k: v for k, v in threads.items() if v is not None}


class EmbeddedSession(ChildSession):
    """A ``Session`` over a pipe."""

    def __init__(self, host: Host, process: Child, events: queue.SimpleQueue[str], kills: int) -> None:
        super().__init__(host, process, kills)
        self._events = events

    @property
    def url(self) -> str | None:
        return None

    def _poll(self) -> Down | bool:
        event = self._next()
        return event if isinstance(event, Down) else bool(event.get("ready"))

    def _next(self) -> dict[str, Any] | Down:
        """The next event; empty after a while without one."""
        try:
            line = self._events.get(timeout=STEP_S)
        except queue.Empty:
            return self.alive() or {}
        if not line.startswith(MARK):
            return {}
        try:
            event = json.loads(line[len(MARK) :])
        except ValueError:
            return {}
        return event if isinstance(event, dict) else {}

    def placement(self) -> Placement:
        return server_log.parse(self._process.lines())

    def tokenize(self, text: str) -> tuple[int, ...] | Down:
        self._process.say(json.dumps({"tokenize": text}))
        until = self._host.clock() + TOKENIZE_S
        while self._host.clock() < until:
            event = self._next()
            if isinstance(event, Down):
                return event
            if "ids" in event:
                return tuple(event["ids"])
        return Down(Cause(Kind.OTHER, "it does not answer"))

    def ask(self, question: Question, hear: Callable[[str], None], tick: Tick) -> Answer | Down | Stopped:
        body = {"prompt": question.prompt, "n_predict": question.n_predict, "exact": question.exact}
        reading = Reading(self._host.clock(), question)
        self._process.say(json.dumps(body))
        while True:
            event = self._next()
            if isinstance(event, Down):
                return event
            if piece := reading.feed(event, self._host.clock()):
                hear(piece)
            if reading.timings is not None:
                return reading.answer() or Down(Cause(Kind.OTHER, "the answer is empty"))
            if reason := tick(reading):
                return Stopped(reason, reading)
