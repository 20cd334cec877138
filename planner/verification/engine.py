"""The engine behind a plan: started with any settings, one at a time, watched, and always ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Self

from planner.errors import EngineError
from planner.verification.startable import Own
from planner.verification.watch import Watch

if TYPE_CHECKING:
    from emit.flags import Spelled
    from planner.facts.observed import Answer
    from planner.plans.plan import Candidate, Plan
    from planner.plans.settings import Settings
    from planner.search import Pricing
    from probes.engine_cause import Cause
    from probes.host import Host
    from probes.session import Down, Question, Session, Stopped, Tick

LOAD_S = 120.0
PORTS = 3
"""Free ports that are tried: another program may take one before the engine does."""
LOAD_BPS = 50e6
"""Loading may take two minutes and what a slow disk needs for the file."""


class Kind(StrEnum):
    """What went wrong: ``limit`` is a wait that we ended, no fault of the engine."""

    COLLAPSE = "collapse"
    MEMORY = "memory"
    LIMIT = "limit"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why there is no answer; ``lines``: what the engine said last."""

    kind: Kind
    text: str
    lines: tuple[str, ...] = ()

    @property
    def limit(self) -> bool:
        """Whether we only stopped waiting."""
        return self.kind is Kind.LIMIT


@dataclass(frozen=True, slots=True)
class Live:
    """A running engine with its settings and its watcher."""

    candidate: Candidate
    session: Session
    watch: Watch

    def ask(
        self, question: Question, prompt_n: int, hear: Callable[[str], None], limit_s: float | None = None
    ) -> Answer | Trouble:
        """An answer, or what kept it from coming.

        Args:
            prompt_n: tokens of the prompt, about.
            limit_s: what it may take.
        """
        from planner.facts.observed import Answer

        tick = self.watch.ticker(prompt_n, question.n_predict, limit_s)
        found = self.session.ask(question, hear, tick)
        return found if isinstance(found, Answer) else self.trouble(found)

    def trouble(self, found: Down | Stopped) -> Trouble:
        from probes.session import Stopped

        if isinstance(found, Stopped):
            return Trouble(Kind.COLLAPSE if self.watch.collapsed else Kind.LIMIT, found.reason)
        return _of(found.cause)


class Engine:
    """Starts the engine of a plan. As a context it ends what runs.

    Args:
        own: the user's own arguments for llama-server.
        serve: start at the plan's port where it is free, as what runs last goes on; else at any.
    """

    def __init__(self, host: Host, plan: Plan, pricing: Pricing, own: Own, *, serve: bool = False) -> None:
        self._host, self._plan, self._pricing, self._own, self._serve = host, plan, pricing, own, serve
        self.taken = ""
        """Why what runs is not at the plan's port; empty if it is, or need not be."""
        self._live: Live | None = None
        self._stamps = self._files()

    def _files(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(self._host.stamp(shard) for shard in self._plan.model.shards)

    @property
    def name(self) -> str:
        engine = self._plan.machine.engine
        build = "" if engine is None or engine.build is None else f" b{engine.build}"
        return ("llama.cpp" if engine is None else engine.kind) + build

    def replaced(self) -> Trouble | None:
        """Set once the model's files are no longer those that were planned for."""
        if self._files() == self._stamps:
            return None
        return Trouble(Kind.FAILED, "the model file changed while it was being verified")

    def spells(self, settings: Settings) -> bool:
        """Whether this build has flags for the settings."""
        try:
            self._argv(settings, 0)
        except EngineError:
            return False
        return True

    def with_settings(self, candidate: Candidate) -> Live | Trouble:
        """The engine under these settings: the one that runs, or a new one in its place."""
        if changed := self.replaced():
            return changed
        if self._live is not None and self._live.candidate.settings == candidate.settings:
            down = self._live.session.alive()
            return self._live if down is None else self._live.trouble(down)
        self.end()
        watches: list[Watch] = []

        def begun(pid: int) -> Tick:
            watches.append(Watch(self._host, pid, candidate, self._pricing))
            return watches[0].load

        try:
            session = self._open(candidate, begun)
            if not isinstance(session, Trouble):
                watches[-1].loaded(session)
                self._live = Live(candidate, session, watches.pop())
                return self._live
            paged = any(watch.collapsed for watch in watches)
            return replace(session, kind=Kind.COLLAPSE) if paged else session
        finally:
            for watch in watches:
                watch.stop()

    def _open(self, candidate: Candidate, begun: Callable[[int], Tick]) -> Session | Trouble:
        from probes import embedded_session, server
        from probes.engine_cause import Kind as Why
        from probes.server_http import Address
        from probes.session import Down, Stopped

        limit_s = LOAD_S + self._plan.model.file_bytes / LOAD_BPS
        engine = self._plan.machine.engine
        if engine is not None and engine.server is None:
            found: Session | Down | Stopped = embedded_session.open_embedded(
                self._host, self._plan.model.path, asdict(candidate.settings), limit_s, begun
            )
        else:
            own, self.taken = self._own, ""
            for port in self._ports(candidate.settings):
                argv, at = self._argv(candidate.settings, port), Address(port, own.api_key)
                found = server.open_server(self._host, argv, at, limit_s, begun)
                if not (isinstance(found, Down) and found.cause.kind is Why.PORT):
                    break
                self.taken = self.taken or (found.cause.text if self._serve else "")
        if isinstance(found, Stopped):
            return Trouble(Kind.FAILED, found.reason)
        return self._kept_secret(_of(found.cause)) if isinstance(found, Down) else found

    def _kept_secret(self, trouble: Trouble) -> Trouble:
        """What the server said last, without the user's key if it said that."""
        key = self._own.api_key
        if not key:
            return trouble
        return replace(trouble, lines=tuple(line.replace(key, "***") for line in trouble.lines))

    def _ports(self, settings: Settings) -> Iterator[int]:
        """Where to start, one after the other: the user's alone, else the plan's to serve at, then free ones."""
        from probes import ports

        if self._own.port is not None:
            yield self._own.port
            return
        if self._serve:
            yield from (int(item.tokens[-1]) for item in self._items(settings) if item.setting == "port")
        for _ in range(PORTS):
            yield ports.free_port()

    def _items(self, settings: Settings) -> tuple[Spelled, ...]:
        from emit.flags import spelled

        plan = self._plan
        return spelled(settings, plan.model, plan.machine, build=plan.workload.target_build)

    def _argv(self, settings: Settings, port: int) -> tuple[str, ...]:
        """The whole command. Raises EngineError for what this build cannot do."""
        engine = self._plan.machine.engine
        tokens = [token for item in self._items(settings) if item.setting != "port" for token in item.tokens]
        program = engine.server if engine is not None and engine.server else "llama-server"
        return (program, *tokens, "--port", str(port), *self._own.more)

    def live(self) -> Live | None:
        return self._live

    def end(self) -> None:
        """End what runs, if anything does."""
        live, self._live = self._live, None
        if live is not None:
            try:
                live.session.close()
            finally:
                live.watch.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def _of(cause: Cause) -> Trouble:
    from probes.engine_cause import Kind as Why

    return Trouble(Kind.MEMORY if cause.kind is Why.MEMORY else Kind.FAILED, cause.text, cause.lines)
