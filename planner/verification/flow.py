"""Verification from end to end, and what it would take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from planner.plans.verified import Finding, Foreseen, Verification
from planner.verification import looking
from planner.verification.engine import Engine, Live, Trouble
from planner.verification.listener import Listener
from planner.verification.options import Options
from planner.verification.startable import check_prompt
from planner.verification.verifier import Verifier, abilities
from planner.verify.budget import ASSUMED_LOAD_BPS, KEPT_BACK, START_S, Bounds, Pace, ask_s, forecast
from planner.verify.proposals import proposals

if TYPE_CHECKING:
    from planner.plans.plan import Plan
    from planner.search import Pricing
    from probes.host import Host


@dataclass(frozen=True, slots=True)
class Running:
    """A verification, and the engine if it goes on."""

    verification: Verification
    wait: Callable[[], Trouble | None]
    """Serve until the engine ends by itself, and say why; returns at once where nothing serves."""


@contextmanager
def verified(host: Host, plan: Plan, pricing: Pricing, options: Options, listener: Listener) -> Iterator[Running]:
    """Verify a plan; with ``serve`` the engine runs until the context ends.

    Raises OptionError for a prompt that is too long for any slot of it.
    """
    from probes.environment import engine_arguments

    check_prompt(plan, options.prompt)
    with Engine(host, plan, pricing, options.own, serve=options.serve) as engine:
        if dropped := engine_arguments():
            listener.note(f"not passed on to the engine, the plan decides: {' '.join(dropped)}")
        found = Verifier(host, plan, pricing, options, listener, engine).run()
        live = engine.live() if options.serve and found.finding in (Finding.VERIFIED, Finding.SLOWER) else None
        if live is None:
            engine.end()
            yield Running(found, lambda: None)
            return
        live.watch.stop()
        moved = (
            (f"{engine.taken}, so it serves at {live.session.url}; -- --port N takes another",) if engine.taken else ()
        )
        yield Running(replace(found, url=live.session.url, notes=(*found.notes, *moved)), lambda: _wait(live))


def _wait(live: Live) -> Trouble | None:
    from time import sleep

    if live.session.url is None:
        return None
    while (down := live.session.alive()) is None:
        sleep(0.5)
    return live.trouble(down)


def foreseen(host: Host, plan: Plan, pricing: Pricing, options: Options) -> Foreseen:
    """What verifying would take by the predicted rates, if nothing were kept. Starts nothing.

    Raises as ``verified`` does.
    """
    check_prompt(plan, options.prompt)
    engine, problem, settings = Engine(host, plan, pricing, options.own), pricing.problem, plan.chosen.settings
    slot = min(looking.slot_tokens(settings), problem.model.n_ctx_train or looking.MANY)
    deepest = looking.wanted(slot, problem.workload.prompt_tokens)
    speed = pricing.at(settings, max(min(settings.n_ubatch, deepest), 1), 1).speed
    load_s = START_S + plan.model.file_bytes / ASSUMED_LOAD_BPS
    pace = Pace(speed.prefill_tps.mid, speed.decode_tps.mid, load_s, cold=bool(settings.devices))
    there = pricing.at(settings, max(deepest, 1), 1).speed
    look_s = ask_s(replace(pace, prefill_tps=there.prefill_tps.mid, decode_tps=there.decode_tps.mid), deepest)
    found = proposals(
        problem, plan.chosen, pricing.candidate, abilities(plan, engine), frozenset({plan.chosen.settings})
    )
    bounds = Bounds(problem.workload.prompt_tokens, looking.room(slot))
    left_s = options.budget_s - min(look_s, KEPT_BACK * options.budget_s)
    trials = forecast(pace, found, bounds, left_s, options.max_trials)
    return Foreseen(trials, deepest, look_s, options.budget_s)
