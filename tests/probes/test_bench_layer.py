"""The driver against an engine whose layers take a known time, and against engines that fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from planner.facts.layer_cut import CutPair, KindCount, LayerKind
from planner.facts.machine import LayerRate
from planner.facts.outcome import ProbeReport
from planner.facts.reading import Source
from probes import layer_figures
from probes.bench_engine import Job
from probes.bench_layer import measure, placements
from probes.layer_fit import Timing
from probes.recorded import RecordedHost

Q4, MIXED = LayerKind("moe", "Q4_K"), LayerKind("moe", "Q4_K+Q6_K")
PAIR = CutPair("f" * 8, 2, 6, (KindCount(Q4, 4, 4000),), 0.75, "shallow", "deep")
HEAD_S, FIXED_S = 0.5, 0.004
DECODE = {"CPU": 0.010, "CUDA0": 0.002, "CUDA0, experts in RAM": 0.009}
PREFILL = {"CPU": 0.0010, "CUDA0": 0.0001, "CUDA0, experts in RAM": 0.0002}
Host = Callable[..., RecordedHost]


@dataclass
class Engine:
    """Time = head + layers x (known seconds); the clock of the host advances with it."""

    name: str = "fake-bench"
    broken: dict[str, str] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    now: float = 0.0
    drift: float = 0.0

    def time(self, job: Job, timeout_s: float) -> Timing | str:
        self.jobs.append(job)
        where = job.placement.words
        if where in self.broken:
            self.now += 0.1
            return self.broken[where]
        n = PAIR.shallow if job.path == "shallow" else PAIR.deep
        slow = 1.0 + self.drift * len(self.jobs)
        decode = HEAD_S + n * DECODE[where] * slow
        prefill = {t: HEAD_S + n * (FIXED_S + t * PREFILL[where]) * slow for t in job.prompts}
        self.now += job.repeats * (sum(prefill.values()) + job.n_gen * decode)
        if timeout_s < 0:
            return "did not end"
        return Timing((decode,) * job.repeats, {t: (s,) * job.repeats for t, s in prefill.items()})


def run(
    host: RecordedHost, engine: Engine, *devices: str, pair: CutPair = PAIR, budget_s: float = 1e6
) -> tuple[tuple[LayerRate, ...], tuple[ProbeReport, ...]]:
    host.clock = lambda: engine.now  # type: ignore[method-assign]
    return measure(host, engine, pair, placements(devices, moe=True), 8, budget_s)


def test_known_layers_come_out(recorded: Host) -> None:
    rates, reports = run(recorded("hybrid"), Engine(), "CUDA0")
    assert [report.status for report in reports] == ["found"] * 3
    found = {(rate.device, rate.experts): rate for rate in rates}
    for (device, experts), rate in found.items():
        words = device + (", experts in RAM" if experts == "host" else "")
        assert rate.decode_s is not None and rate.prefill_s_per_token is not None
        assert rate.decode_s.value == pytest.approx(DECODE[words])
        assert rate.prefill_s_per_token.value == pytest.approx(PREFILL[words])
        assert rate.prefill_fixed_s == pytest.approx(FIXED_S)
        assert len(rate.prefill_points) == 3
        assert (rate.kind, rate.expert_type, rate.layers, rate.read_bytes) == ("moe", "Q4_K", 4, 1000)
        assert rate.threads == (None if words == "CUDA0" else 8)
    crossing = found["CUDA0", "host"].crossing_s
    assert crossing is not None and crossing.source is Source.DERIVED
    assert crossing.value == pytest.approx(0.009 - 0.25 * 0.002 - 0.75 * 0.010)


def test_both_depths_are_interleaved_and_drift_falls_out(recorded: Host) -> None:
    engine = Engine(drift=0.002)
    (rate,), _ = run(recorded("hybrid"), engine)
    assert [job.path for job in engine.jobs[1:5]] == ["shallow", "deep", "deep", "shallow"]
    assert rate.decode_s is not None
    assert rate.decode_s.value == pytest.approx(DECODE["CPU"], rel=0.03)


def test_kinds_share_a_difference_by_the_bytes_they_read(recorded: Host) -> None:
    pair = CutPair("f" * 8, 2, 6, (KindCount(Q4, 3, 3000), KindCount(MIXED, 1, 2000)), 0.75, "shallow", "deep")
    rates, _ = run(recorded("hybrid"), Engine(), pair=pair)
    values = {rate.expert_type: rate.decode_s.value for rate in rates if rate.decode_s}
    assert values == {"Q4_K": pytest.approx(0.008), "Q4_K+Q6_K": pytest.approx(0.016)}
    assert all("shared by bytes" in rate.decode_s.method for rate in rates if rate.decode_s)


def test_a_device_that_dies_is_reported_and_left_out(recorded: Host) -> None:
    engine = Engine(broken={"CUDA0": "ended with status -6 and said: \x1b[31mCUDA error"})
    rates, reports = run(recorded("hybrid"), engine, "CUDA0")
    assert [(rate.device, rate.experts) for rate in rates] == [("CPU", "device")]
    assert [report.status for report in reports] == ["found", "failed", "failed"]
    assert reports[1].reason == "ended with status -6 and said: [31mCUDA error"
    assert reports[2].reason == "its device failed before"
    assert sum(job.placement.device == "CUDA0" for job in engine.jobs) == 1


def test_slow_devices_get_small_ubatches_and_the_budget_holds(recorded: Host) -> None:
    engine = Engine()
    rates, reports = run(recorded("hybrid"), engine, "CUDA0", budget_s=120.0)
    assert engine.now < 150.0
    assert {rate.prefill_batch for rate in rates} <= {128, 256, 512}
    late = Engine()
    rates, reports = run(recorded("hybrid"), late, budget_s=1.0)
    assert rates == ()
    assert reports[0].reason == "no time left for it"


def test_a_failure_says_where_the_time_went(recorded: Host) -> None:
    """Runs of 0.5 s by what the trial says, then one of 20 s, then none."""
    engine = Engine()
    times = iter([(9.0, 0.001), (19.0, 0.001)])

    def time(job: Job, timeout_s: float) -> Timing | str:
        took, each = next(times, (timeout_s, 0.0))
        engine.now += took
        return Timing((each,), dict.fromkeys(job.prompts, (each,))) if each else f"did not end within {timeout_s:.1f} s"

    engine.time = time  # type: ignore[method-assign]
    _, (report,) = run(recorded("hybrid"), engine, budget_s=34.0)
    assert report.reason == "did not end within 9.0 s; before that, a trial took 9.0 s and 1 run 19.0 s"


def test_what_cannot_end_in_time_is_not_begun(recorded: Host) -> None:
    engine = Engine()
    _, (report,) = run(recorded("hybrid"), engine, budget_s=10.0)
    assert len(engine.jobs) == 1
    assert report.reason == "a trial took 3.0 s: one run of each depth would take 46 s, 10 s are left"


def test_noise_is_not_a_rate(recorded: Host) -> None:
    engine = Engine()
    pair = CutPair("f" * 8, 2, 6, PAIR.kinds, 0.75, "deep", "shallow")  # the deep one is faster
    rates, reports = run(recorded("hybrid"), engine, pair=pair)
    assert rates == ()
    assert reports[0].reason == "the layers' time drowns in noise"


def test_rates_survive_the_store(recorded: Host) -> None:
    rates, _ = run(recorded("hybrid"), Engine(), "CUDA0")
    kept = [layer_figures.from_json(layer_figures.to_json(rate)) for rate in rates]
    assert [rate.decode_s for rate in kept] == [rate.decode_s for rate in rates]
    assert [(r.device, r.experts, r.prefill_points) for r in kept] == [
        (r.device, r.experts, r.prefill_points) for r in rates
    ]


@pytest.mark.parametrize(
    "change",
    [{"experts": "moon"}, {"kind": 3}, {"device": None}, {"read_bytes": -1}, {"decode_s": 5}, {"prefill_points": [1]}],
)
def test_a_damaged_record_is_refused(change: dict[str, object]) -> None:
    sound = layer_figures.to_json(LayerRate("m", "CPU", "moe", "Q4_K"))
    assert layer_figures.from_json(sound) == LayerRate("m", "CPU", "moe", "Q4_K")
    with pytest.raises((ValueError, KeyError, TypeError)):
        layer_figures.from_json({**sound, **change})
