"""Times a layer of the user's model on every device and placement, as a difference of two depths.

Both depths run under the engine in the order A B B A, so that what slows the machine for a while slows both. The
embedding, the head and sampling are in both and fall out. Mixed placements (experts in RAM, the rest on a GPU)
are timed as decode really runs them, CPU and GPU at work in one graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from planner import units
from planner.facts.layer_cut import CutPair
from planner.facts.machine import LayerPoint, LayerRate
from planner.facts.outcome import ProbeReport
from planner.facts.reading import Reading, Source
from probes.bench_engine import CPU, Bench, Job, Placement
from probes.figures import median
from probes.host import Host
from probes.layer_fit import Difference, Timing, crossing, difference, line
from probes.text import clean

TRIAL: Final = (32, 4)
"""Prompt and answer of the first, untimed look at how fast the device is."""
LADDER: Final = ((32, 64, 128), (64, 128, 256), (64, 256, 512), (128, 512, 1024), (128, 512, 2048))
"""Ubatch sizes, from slow to fast devices; all are large enough for op offload (32, b11312)."""
ANSWER: Final = 16
REPEATS: Final = 2
ROUNDS: Final = 3
CAUTION: Final = 0.7
"""Part of its time that a placement plans to use: an estimate from one short run may be far off."""
START_S: Final = 0.5
"""Loading a small file and setting up a context."""
GRACE_S: Final = 3.0
"""A run that lasts this long beyond its time is ended."""
REMOTE_GRACE_S: Final = 20.0
"""The same with a remote device: its server ends with a client that is killed (ggml-rpc-server, b11549)."""
MIN_S: Final = 2.5
"""Less time than this is not worth a start."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one placement gave: seconds of the mean layer of the difference."""

    placement: Placement
    decode: Difference | None
    prefill: dict[int, Difference]
    pairs: int


@dataclass(slots=True)
class Series:
    """Samples of both depths in the order they were taken."""

    decode: dict[str, list[tuple[float, ...]]] = field(default_factory=lambda: {"shallow": [], "deep": []})
    prefill: dict[int, dict[str, list[tuple[float, ...]]]] = field(default_factory=dict)

    def add(self, which: str, timing: Timing) -> None:
        self.decode[which].append(timing.decode_s)
        for tokens, seconds in timing.prefill_s.items():
            self.prefill.setdefault(tokens, {"shallow": [], "deep": []})[which].append(seconds)


def placements(devices: Iterable[str], *, moe: bool) -> tuple[Placement, ...]:
    """The CPU, and every device alone and with a mixture's experts in RAM."""
    found = [Placement(CPU)]
    for device in devices:
        found.append(Placement(device))
        found += [Placement(device, host_experts=True)] if moe else []
    return tuple(found)


def measure(
    host: Host, bench: Bench, pair: CutPair, wanted: tuple[Placement, ...], threads: int, budget_s: float
) -> tuple[tuple[LayerRate, ...], tuple[ProbeReport, ...]]:
    """Time every placement; one whose device dies, hangs or talks nonsense is reported and left out.

    Args:
        budget_s: for all placements; each gets an equal part of what is left when its turn comes.
    """
    end = host.clock() + budget_s
    results: list[Result] = []
    reports, dead = [], set()
    for no, placement in enumerate(wanted):
        start = host.clock()
        share = (end - start) / (len(wanted) - no)
        outcome: Result | str
        if placement.device in dead:
            outcome = "its device failed before"
        elif share < MIN_S:
            outcome = "no time left for it"
        else:
            outcome = _place(host, bench, pair, placement, threads, start + share)
        found = isinstance(outcome, Result)
        if isinstance(outcome, Result):
            results.append(outcome)
            note = f"{bench.name}, {pair.shallow} and {pair.deep} layers, {units.counted(outcome.pairs, 'pair')}"
        else:
            note = clean(outcome)
            dead |= {placement.device} if placement.device != CPU and not placement.host_experts else set()
        seconds = round(max(host.clock() - start, 0.0), 3)
        reports.append(ProbeReport(f"layer ({placement.words})", "found" if found else "failed", note, seconds))
    return _rates(bench.name, pair, results, threads), tuple(reports)


def _place(host: Host, bench: Bench, pair: CutPair, placement: Placement, threads: int, end: float) -> Result | str:
    prompt, answer = TRIAL
    last = end + (REMOTE_GRACE_S if placement.device.startswith("RPC") else GRACE_S)
    trial, begun = Job(pair.deep_path, placement, (prompt,), answer, 1, threads), host.clock()
    look = bench.time(trial, last - begun)
    if isinstance(look, str):
        return look
    tried = host.clock()
    job, round_s = _sized(pair, trial, look, end - tried)
    spent = f"a trial took {tried - begun:.1f} s"
    if round_s / 2 * CAUTION > last - tried:
        return f"{spent}: one run of each depth would take {round_s / 2:.0f} s, {max(last - tried, 0.0):.0f} s are left"
    series, runs = Series(), 0
    paths = {"shallow": pair.shallow_path, "deep": pair.deep_path}
    problem, done = "", tried
    for which in ("shallow", "deep", "deep", "shallow") * ROUNDS:
        at_pair = runs % 2 == 0
        if runs and at_pair and host.clock() + round_s / 2 > end:
            break
        timing = bench.time(replace(job, path=paths[which]), last - host.clock())
        if isinstance(timing, str):
            problem = timing
            break
        series.add(which, timing)
        runs, done = runs + 1, host.clock()
    if runs < 2 or (problem and host.clock() < end):  # ended by itself: a device that dies once is not relied on
        return f"{problem}; before that, {spent} and {units.counted(runs, 'run')} {done - tried:.1f} s"
    n = pair.n_layers
    prefill = {t: difference(by["shallow"], by["deep"], n) for t, by in series.prefill.items()}
    decode = difference(series.decode["shallow"], series.decode["deep"], n)
    kept = {t: d for t, d in prefill.items() if d is not None}
    if decode is None and not kept:
        return "the layers' time drowns in noise"
    return Result(placement, decode, kept, runs // 2)


def _sized(pair: CutPair, trial: Job, look: Timing, left_s: float) -> tuple[Job, float]:
    """The largest sizes of which two pairs of runs fit in the time left, and how long those take."""
    (prompt,) = trial.prompts
    per_token = median(list(look.prefill_s.get(prompt, (0.0,)))) / prompt
    per_answer = median(list(look.decode_s or (0.0,)))
    runs = 2 * (1 + pair.shallow / pair.deep)
    chosen, seconds = LADDER[0], 0.0
    for sizes in LADDER:
        tokens, answers = (REPEATS + 1) * sum(sizes), REPEATS * ANSWER + 1
        cost = runs * (per_token * tokens + per_answer * answers) + 4 * START_S
        if sizes is LADDER[0] or cost <= left_s * CAUTION:
            chosen, seconds = sizes, cost
    return replace(trial, prompts=chosen, n_gen=ANSWER, repeats=REPEATS), seconds


def _rates(name: str, pair: CutPair, results: list[Result], threads: int) -> tuple[LayerRate, ...]:
    decode = {r.placement: r.decode.value for r in results if r.decode is not None}
    rates = []
    for result in results:
        place = result.placement
        mixed, whole, host = (decode.get(p) for p in (place, Placement(place.device), Placement(CPU)))
        extra = None
        if place.host_experts and mixed is not None and whole is not None and host is not None:
            extra = crossing(mixed, whole, host, pair.expert_share)
        uses_cpu = place.device == CPU or place.host_experts
        rates += [_rate(name, pair, result, i, extra, threads if uses_cpu else None) for i in range(len(pair.kinds))]
    return tuple(rates)


def _rate(name: str, pair: CutPair, result: Result, at: int, extra: float | None, threads: int | None) -> LayerRate:
    """The rate of one kind: where the difference spans several, each takes its part by the bytes it reads."""
    kind = pair.kinds[at]
    mean = kind.read_bytes / kind.n
    part = mean / (pair.read_bytes / pair.n_layers)
    method = f"{name}: difference of {pair.shallow} and {pair.deep} layers"
    method += "" if len(pair.kinds) == 1 else ", shared by bytes"

    def reading(found: Difference) -> Reading:
        spread = None if found.spread is None else found.spread * part
        return Reading(found.value * part, Source.MEASURED, method, spread)

    points = tuple(LayerPoint(tokens, reading(found)) for tokens, found in sorted(result.prefill.items()))
    fitted = line({point.tokens: point.seconds.value for point in points})
    slope = None
    if fitted is not None and fitted.per_token_s > 0:
        spreads = [p.seconds.spread / p.tokens for p in points if p.seconds.spread is not None]
        method_of_line = f"{method}, ubatch {_sizes(points)}"
        slope = Reading(fitted.per_token_s, Source.MEASURED, method_of_line, max(spreads, default=None))
    return LayerRate(
        model=pair.model,
        device=result.placement.device,
        kind=kind.kind.kind,
        expert_type=kind.kind.expert_type,
        decode_s=reading(result.decode) if result.decode else None,
        prefill_s_per_token=slope,
        prefill_batch=points[-1].tokens if points else None,
        prefill_fixed_s=fitted.fixed_s if fitted is not None and slope is not None else 0.0,
        prefill_points=points,
        experts="host" if result.placement.host_experts else "device",
        read_bytes=round(mean),
        layers=pair.n_layers,
        threads=threads,
        crossing_s=None if extra is None else Reading(extra * part, Source.DERIVED, "mixed less its two parts"),
    )


def _sizes(points: tuple[LayerPoint, ...]) -> str:
    return ", ".join(str(point.tokens) for point in points)
