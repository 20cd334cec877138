from __future__ import annotations

from dataclasses import replace

import pytest

from planner.facts.observed import Answer, Buffer, GpuSample, Placement, Sample
from planner.plans.speed import Band
from planner.plans.verified import Compared
from planner.units import GIB, MIB
from planner.verify import compare
from planner.verify.learn import BOUND, Rate, as_pin, changed, ratio, run_ratio
from tests.builders import make_gpu, make_machine, make_settings
from tests.emit.plans import make_candidate

MACHINE = make_machine(make_gpu())
CANDIDATE = make_candidate(make_settings(), MACHINE)
ANSWER = Answer("", (), 1000, 1.0, 64, 2.0, 1.1)


def of(items: tuple[Compared, ...]) -> dict[str, Compared]:
    return {item.term: item for item in items}


def test_rates_are_out_under_the_low_end_alone() -> None:
    found = of(tuple(compare.speeds(CANDIDATE, ANSWER)))
    assert (found["prefill"].observed, found["prefill"].within) == (1000.0, True)
    assert (found["decode"].observed, found["decode"].within) == (32.0, True)
    slow = of(tuple(compare.speeds(CANDIDATE, replace(ANSWER, predicted_s=2.1, prompt_s=0.1))))
    assert not slow["decode"].within and slow["prefill"].within


def test_prefill_of_a_few_tokens_is_shown_but_not_judged() -> None:
    """45.8 tok/s over one token, 183 predicted, taught a quarter of the speed."""
    slow = replace(ANSWER, prompt_n=127, prompt_s=10.0)
    found = of(tuple(compare.speeds(CANDIDATE, slow)))
    assert (found["prefill"].observed, found["prefill"].within, found["prefill"].judged) == (12.7, True, False)
    assert run_ratio(tuple(found.values()), "prefill", None) is None and found["decode"].judged
    told = of(tuple(compare.speeds(CANDIDATE, replace(slow, prompt_n=128))))["prefill"]
    assert told.judged and not told.within and run_ratio((told,), "prefill", None) is not None


def test_one_token_has_no_rate() -> None:
    assert "decode" not in of(tuple(compare.speeds(CANDIDATE, replace(ANSWER, predicted_n=1))))


def test_buffers_by_device_and_host() -> None:
    logged = (
        Buffer("CUDA0", "model", 1536 * MIB),
        Buffer("CUDA0", "context", 200 * MIB),
        Buffer("CUDA0", "context", 56 * MIB),
        Buffer("CUDA0", "compute", 160 * MIB),
        Buffer("CUDA_Host", "model", 1000 * MIB),
        Buffer("CUDA_Host", "compute", 64 * MIB),
        Buffer("CPU", "output", MIB),
    )
    found = of(tuple(compare.buffers(CANDIDATE, Placement(logged))))
    assert found["CUDA0 model"].within and found["CUDA0 context"].within
    assert (found["CUDA0 compute"].observed, found["CUDA0 compute"].within) == (160 * MIB, False)
    assert found["Host model"].observed == 1000 * MIB and found["Host model"].within
    assert list(compare.buffers(CANDIDATE, Placement())) == []


def test_a_mapped_range_beside_a_device_is_no_size_of_the_hosts() -> None:
    logged = (Buffer("CUDA0", "model", 1536 * MIB), Buffer("CPU_Mapped", "model", 2536 * MIB))
    assert set(of(tuple(compare.buffers(CANDIDATE, Placement(logged))))) == {"CUDA0 model"}
    alone = replace(CANDIDATE, memory=replace(CANDIDATE.memory, devices=()))
    (model, *_) = compare.buffers(alone, Placement(logged[1:]))
    assert model.term == "Host model" and model.observed == 2536 * MIB


def test_a_kind_that_is_logged_nowhere_is_not_zero() -> None:
    """Of one that is logged somewhere, nothing on a device means nothing there."""
    logged = (Buffer("CUDA0", "model", 1536 * MIB), Buffer("CPU", "context", 256 * MIB))
    found = of(tuple(compare.buffers(CANDIDATE, Placement(logged))))
    assert found["CUDA0 context"].observed == 0 and not {name for name in found if "compute" in name}


def test_a_remote_device_has_its_address_in_the_log() -> None:
    assert compare.base("RPC0[127.0.0.1:50052]") == "RPC0"
    assert compare.base("CUDA_Host") == "CUDA_Host"


def test_the_peak_is_everybodys() -> None:
    used = (GIB, 4 * GIB, 3 * GIB)
    samples = tuple(Sample(float(t), (GpuSample("CUDA0", n),)) for t, n in enumerate(used))
    (found,) = compare.peaks(CANDIDATE, samples)
    assert (found.term, found.observed, found.predicted.mid) == ("CUDA0 peak", 4 * GIB, 3 * GIB)
    assert not found.within
    assert compare.extra((found,), ("CUDA0",)) == (("CUDA0", GIB),)
    assert list(compare.peaks(CANDIDATE, (Sample(0.0),))) == []


def test_within_the_tolerance_nothing_is_set_aside() -> None:
    (found,) = compare.peaks(CANDIDATE, (Sample(0.0, (GpuSample("CUDA0", 3 * GIB + MIB),)),))
    assert found.within and compare.extra((found,), ("CUDA0",)) == ()


@pytest.mark.parametrize(
    ("runs", "value", "bounded"),
    [((0.5,), 0.5, False), ((0.5, 0.5, 0.9), 0.5, False), ((0.01,), 1 / BOUND, True), ((9.0, 9.0), BOUND, True)],
)
def test_the_correction_is_a_bounded_median(runs: tuple[float, ...], value: float, bounded: bool) -> None:
    found = ratio(tuple(Rate(value, 1.25) for value in runs))
    assert found is not None and found.runs == len(runs)
    assert (found.value, found.bounded) == (pytest.approx(value), bounded)
    assert ratio(()) is None


@pytest.mark.parametrize(
    ("runs", "value", "spread", "n"),
    [
        (((0.4, 1.25), (1.0, 1.25)), 1.0, 1.25, 1),  # 2.5 times: beyond 1.25 ** 3
        (((0.6, 1.25), (1.0, 1.25)), 0.7746, 1.2910, 2),
        (((0.4, None), (1.0, 1.25)), 0.6325, 1.5811, 2),  # of an old run nobody knows how steady it was
        (((0.4, None),), 0.4, 2.0, 1),
        (((0.5, 1.4),), 0.5, 1.4, 1),
        (((0.5, 1.4), (0.51, 1.4)), 0.5050, 1.25, 2),
        (((0.4, 1.25), (0.41, 1.25), (2.0, 1.25), (2.1, 1.25)), 2.0494, 1.25, 2),
    ],
)
def test_a_run_far_outside_the_band_replaces_those_before(
    runs: tuple[tuple[float, float | None], ...], value: float, spread: float, n: int
) -> None:
    found = ratio(tuple(Rate(*run) for run in runs))
    assert found is not None and found.runs == n
    assert (found.value, found.spread) == (pytest.approx(value, rel=1e-3), pytest.approx(spread, rel=1e-3))


def test_a_correction_that_is_applied_already_is_taken_out() -> None:
    """Predicted 50 with x0.5 in it, seen 50: the raw prediction is still twice what is seen."""
    seen = (Compared("decode", "tok/s", Band(40, 50, 60), 50.0, True),)
    assert run_ratio(seen, "decode", 0.5) == pytest.approx(0.5)
    assert run_ratio(seen, "decode", None) == pytest.approx(1.0)
    assert run_ratio(seen, "prefill", None) is None


def test_what_changed_in_words_of_pins() -> None:
    before = make_settings()
    after = replace(before, n_ubatch=1024, op_offload=False, override_tensor=((r"blk\.1\.", "CPU"),))
    found = {name: as_pin(value) for name, value in changed(before, after)}
    assert found == {"n_ubatch": "1024", "op_offload": "off", "override_tensor": r"blk\.1\.=CPU"}
