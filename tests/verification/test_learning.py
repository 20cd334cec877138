from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emit import wording
from planner import search
from planner.facts.machine import Engine
from planner.plans.plan import Plan
from planner.plans.speed import Band
from planner.plans.verified import Compared, Finding
from planner.units import GIB
from planner.verification.learning import known, learn, problem
from policies import RULES
from probes.host import LocalHost
from tests.policies.problems import big_model, card, machine, solved

ENGINE = Engine("llama.cpp", 11549)
HERE = machine(card(8, driver="580.95"), engine=ENGINE)


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    return LocalHost(cache_dir=str(tmp_path))


def seen(plan: Plan, decode: float, prefill: float = 1.0, peak_over: int = 0) -> tuple[Compared, ...]:
    """Rates as shares of the predicted ones, and a peak."""
    speed, device = plan.chosen.speed, plan.chosen.memory.devices[0]
    expected = device.used_before_bytes + device.predicted_bytes
    return (
        Compared("decode", "tok/s", speed.decode_tps, speed.decode_tps.mid * decode, True),
        Compared("prefill", "tok/s", speed.prefill_tps, speed.prefill_tps.mid * prefill, True),
        Compared(f"{device.id} peak", "bytes", Band(0, expected, expected), expected + peak_over, peak_over <= 0),
    )


def again(host: LocalHost, plan: Plan) -> Plan:
    """The next plan for the same question."""
    return search.plan(problem(host, plan.machine, plan.model, replace(plan.workload)), RULES)


def test_the_next_plan_predicts_what_was_seen(host: LocalHost) -> None:
    plan = solved(HERE)
    learn(host, plan, plan.chosen, seen(plan, 0.6, 1.5), Finding.VERIFIED, spreads=(), depth=9000)
    following = again(host, plan)
    before, after = plan.chosen.speed, following.chosen.speed
    if following.chosen.settings == plan.chosen.settings:
        assert after.decode_tps.mid == pytest.approx(before.decode_tps.mid * 0.6)
        assert after.prefill_tps.mid == pytest.approx(before.prefill_tps.mid * 1.5)
    assert following.verified is not None
    assert (following.verified.decode_ratio, following.verified.runs) == (pytest.approx(0.6), 1)
    assert after.decode_tps.high / after.decode_tps.mid <= before.decode_tps.high / before.decode_tps.mid


def test_a_second_run_does_not_count_the_correction_twice(host: LocalHost) -> None:
    plan = solved(HERE)
    learn(host, plan, plan.chosen, seen(plan, 0.5), Finding.VERIFIED, spreads=(), depth=9000)
    second = again(host, plan)
    found = learn(host, second, second.chosen, seen(second, 1.0), Finding.VERIFIED, spreads=(), depth=9000)
    assert found.decode_ratio == pytest.approx(0.5) and found.runs == 2


def test_it_is_bounded_and_says_so(host: LocalHost) -> None:
    plan = solved(HERE)
    found = learn(host, plan, plan.chosen, seen(plan, 0.01), Finding.VERIFIED, spreads=(), depth=9000)
    assert (found.decode_ratio, found.bounded) == (0.25, True)
    band = again(host, plan).chosen.speed.decode_tps
    before = plan.chosen.speed.decode_tps
    assert band.high / band.mid == pytest.approx(before.high / before.mid)


def test_memory_beyond_the_prediction_is_set_aside_within_a_tenth(host: LocalHost) -> None:
    plan = solved(HERE)
    found = learn(host, plan, plan.chosen, seen(plan, 1.0, peak_over=GIB), Finding.VERIFIED, spreads=(), depth=9000)
    assert found.extra == (("CUDA0", GIB),)
    assert again(host, plan).chosen.memory.devices[0].headroom_bytes >= GIB
    found = learn(
        host, plan, plan.chosen, seen(plan, 1.0, peak_over=20 * GIB), Finding.VERIFIED, spreads=(), depth=9000
    )
    assert found.extra == (("CUDA0", 24 * GIB // 10),)


@pytest.mark.parametrize(
    "elsewhere",
    [
        replace(HERE, engine=replace(ENGINE, build=11550)),
        replace(HERE, gpus=(replace(HERE.gpus[0], driver="590.01"),)),
        replace(HERE, gpus=()),
        replace(HERE, cpu=replace(HERE.cpu, name="another")),
    ],
    ids=["build", "driver", "no-card", "machine"],
)
def test_a_new_build_driver_or_machine_expires_it(host: LocalHost, elsewhere: object) -> None:
    plan = solved(HERE)
    learn(host, plan, plan.chosen, seen(plan, 0.6), Finding.VERIFIED, spreads=(), depth=9000)
    assert known(host, HERE, plan.model, plan.workload) is not None
    assert known(host, elsewhere, plan.model, plan.workload) is None  # type: ignore[arg-type]


def test_another_model_of_the_family_learns_the_rates_alone(host: LocalHost) -> None:
    plan = solved(HERE)
    kept = search.pricing(plan, RULES).candidate(replace(plan.chosen.settings, threads=6))
    learn(host, plan, kept, seen(plan, 0.6), Finding.VERIFIED, spreads=(), depth=9000)
    same = known(host, HERE, plan.model, plan.workload)
    other = known(host, HERE, big_model(fingerprint="1" * 16), plan.workload)
    assert same is not None and same.exact and same.kept == (("threads", "6"),)
    assert other is not None and not other.exact and other.kept == () and other.decode_ratio == pytest.approx(0.6)
    assert known(host, HERE, big_model(arch="gptoss"), plan.workload) is None


def test_the_ratios_hold_for_the_devices_that_ran(host: LocalHost) -> None:
    plan = solved(HERE)
    learn(host, plan, plan.chosen, seen(plan, 0.5), Finding.VERIFIED, spreads=(), depth=9000)
    given = problem(host, HERE, plan.model, plan.workload)
    pricing = search.pricing(replace(plan, verified=given.verified), RULES)
    on_cpu = replace(plan.chosen.settings, devices=(), n_gpu_layers=0)
    raw = search.pricing(plan, RULES).candidate(on_cpu).speed.decode_tps.mid
    assert pricing.candidate(on_cpu).speed.decode_tps.mid == raw


def test_kept_settings_that_no_longer_fit_are_left(host: LocalHost) -> None:
    plan = solved(machine(card(16, driver="1"), engine=ENGINE))
    kept = search.pricing(plan, RULES).candidate(replace(plan.chosen.settings, threads=6))
    learn(host, plan, kept, seen(plan, 1.0), Finding.VERIFIED, spreads=(), depth=9000)
    smaller = replace(plan.machine, gpus=(card(5, driver="1"),))
    following = search.plan(problem(host, smaller, plan.model, plan.workload), RULES)
    assert following.chosen.runs and following.chosen.settings.threads == 6
    learn(
        host,
        plan,
        search.pricing(plan, RULES).candidate(replace(kept.settings, n_cpu_moe=0)),
        (),
        Finding.VERIFIED,
        spreads=(),
        depth=9000,
    )
    following = search.plan(problem(host, smaller, plan.model, plan.workload), RULES)
    assert following.chosen.runs and following.chosen.settings.n_cpu_moe > 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda run: run.update(decode="fast"),
        lambda run: run.update(decode=float("1e300")),
        lambda run: run.update(decode=10**400),
        lambda run: run.update(extra=[["CUDA0", -5]]),
        lambda run: run.update(extra=[["CUDA0", float("inf")]]),
        lambda run: run.update(finding="collapsed"),
        lambda run: run.update(finding=["verified"]),
        lambda run: run.update(when="\x1b[31m"),
        lambda run: run.pop("kept"),
        lambda run: run.update(decode_spread=0.5),
    ],
)
def test_a_spoiled_run_counts_as_not_there(host: LocalHost, tmp_path: Path, spoil: object) -> None:
    plan = solved(HERE)
    learn(host, plan, plan.chosen, seen(plan, 0.6), Finding.VERIFIED, spreads=(), depth=9000)
    (file,) = tmp_path.glob("measured-verified-*.json")
    data = json.loads(file.read_text())
    spoil(data["figures"]["runs"][0])  # type: ignore[operator]
    file.write_text(json.dumps(data))
    assert known(host, HERE, plan.model, plan.workload) is None


def test_a_slower_run_verifies_nothing(host: LocalHost, tmp_path: Path) -> None:
    plan = solved(HERE)
    learn(host, plan, plan.chosen, seen(plan, 0.1), Finding.SLOWER, spreads=None, depth=9000)
    following = again(host, plan)
    assert following.verified is not None and following.verified.slower and not following.verified.exact
    assert wording.correction(following.verified) == "its speed was not learned"
    learn(host, plan, plan.chosen, seen(plan, 1.0), Finding.VERIFIED, spreads=None, depth=9000)
    now = again(host, plan).verified
    assert now is not None and now.exact and not now.slower and wording.correction(now) == "as predicted"
    (file,) = tmp_path.glob("measured-verified-*.json")
    data = json.loads(file.read_text())
    del data["figures"]["runs"][1]["finding"]
    file.write_text(json.dumps(data))
    before_there_was_a_finding = again(host, plan).verified
    assert before_there_was_a_finding is not None and before_there_was_a_finding.exact


@pytest.mark.parametrize(
    ("kept", "limits"),
    [
        (("n_ctx", "1"), {"n_ctx": 8192}),
        (("n_parallel", "4"), {}),
        (("type_k", "q8_0"), {"kv": ("f16", "f16")}),
        (("n_ubatch", "64"), {"pins": (("n_ubatch", "512"),)}),
        (("rpc", "10.0.0.1:1"), {}),
        (("threads", "0"), {}),
        (("n_cpu_moe", "-3"), {}),
        (("type_k", "zzz"), {}),
        (("n_ubatch", "0"), {}),
        (("n_parallel", "0"), {}),
        (("threads", "1" * 5000), {}),
    ],
)
def test_kept_values_are_pins_and_never_beat_the_user(
    host: LocalHost, tmp_path: Path, kept: tuple[str, str], limits: dict[str, Any]
) -> None:
    plan = solved(HERE, **limits)
    learn(host, plan, plan.chosen, seen(plan, 1.0), Finding.VERIFIED, spreads=None, depth=9000)
    (file,) = tmp_path.glob("measured-verified-*.json")
    data = json.loads(file.read_text())
    data["figures"]["runs"][0]["kept"] = [kept]
    file.write_text(json.dumps(data))
    following = again(host, plan)
    assert following.verified is not None and following.verified.kept == (kept,)
    assert following.chosen.settings == plan.chosen.settings
    learn(host, following, following.chosen, seen(plan, 1.0), Finding.VERIFIED, spreads=None, depth=9000)


def test_a_pipe_is_no_kept_text(host: LocalHost, tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("no named pipes here")
    os.mkfifo(tmp_path / "key.json")
    assert host.cached("key") is None


def test_a_kept_setting_of_another_version_is_left(host: LocalHost, tmp_path: Path) -> None:
    plan = solved(HERE)
    learn(host, plan, plan.chosen, seen(plan, 1.0), Finding.VERIFIED, spreads=(), depth=9000)
    (file,) = tmp_path.glob("measured-verified-*.json")
    data = json.loads(file.read_text())
    data["figures"]["runs"][0]["kept"] = [["no_such", "1"], ["n_ubatch", "many"]]
    file.write_text(json.dumps(data))
    assert again(host, plan).chosen.settings == plan.chosen.settings


def test_a_run_that_taught_no_speed_is_not_counted(host: LocalHost) -> None:
    plan = solved(HERE)
    learn(host, plan, plan.chosen, seen(plan, 0.6), Finding.VERIFIED, spreads=(("decode", 1.25),), depth=9000)
    second = again(host, plan)
    found = learn(host, second, second.chosen, seen(second, 0.3), Finding.SLOWER, spreads=None, depth=9000)
    assert (found.decode_ratio, found.runs, found.slower, found.exact) == (pytest.approx(0.6), 1, True, False)
    assert "(1 run)" in wording.correction(found)


def test_the_band_is_as_narrow_as_the_run_justifies(host: LocalHost, tmp_path: Path) -> None:
    plan = solved(HERE)
    before = plan.chosen.speed.decode_tps
    raw = before.high / before.mid
    assert raw > 1.3
    for spreads, expected in (((), raw), ((("decode", 1.3),), 1.3)):
        for file in tmp_path.glob("measured-verified-*.json"):
            file.unlink()
        found = learn(host, plan, plan.chosen, seen(plan, 0.9), Finding.VERIFIED, spreads=spreads, depth=9000)
        assert found.decode_spread == pytest.approx(expected)
        pricing = search.pricing(replace(plan, verified=found), RULES)
        band = pricing.candidate(plan.chosen.settings).speed.decode_tps
        assert band.high / band.mid == pytest.approx(expected) and band.mid == pytest.approx(before.mid * 0.9)


def test_a_run_of_a_quiet_machine_replaces_a_wrong_correction(host: LocalHost) -> None:
    plan, steady = solved(HERE), (("decode", 1.25), ("prefill", 1.25))
    learn(host, plan, plan.chosen, seen(plan, 0.4), Finding.SLOWER, spreads=steady, depth=9000)
    second = again(host, plan)
    found = learn(host, second, second.chosen, seen(second, 2.5), Finding.VERIFIED, spreads=steady, depth=9000)
    assert found.decode_ratio == pytest.approx(1.0)
    assert not found.slower and found.exact
