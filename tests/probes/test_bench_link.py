from __future__ import annotations

import json
from typing import Any

import pytest

from planner.facts.machine import Backend, Gpu, Machine, Os, Ram
from planner.facts.reading import Reading, Source
from probes import bench_link
from probes.host import CompletedRun
from probes.probe import Absent, Found

DERIVED = Reading(20e9, Source.DERIVED, "PCIe 4.0 x16")


def gpu(n: int, backend: Backend = Backend.CUDA) -> Gpu:
    return Gpu(f"{'CUDA' if backend is Backend.CUDA else backend.value}{n}", 16 << 30, backend=backend,
               h2d_pinned_bps=DERIVED)  # fmt: skip


def machine(*gpus: Gpu) -> Machine:
    return Machine(Os.LINUX, Ram(32 << 30), gpus=gpus)


class Host:
    """Answers the script per ordinal."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = answers, []

    def run_script(
        self, script: str, arguments: tuple[str, ...], timeout_s: float, heard: object = None
    ) -> CompletedRun:
        self.asked.append(arguments)
        answer = self.answers[int(arguments[0])]
        return answer if isinstance(answer, CompletedRun) else CompletedRun(0, json.dumps(answer) + "\n")

    def clock(self) -> float:
        return 0.0


RATES = {"pinned": [23e9, 24e9, 23.5e9], "pageable": [14e9], "copy": [600e9, 610e9], "shared": False, "free_bytes": 1}


def test_measured_rates_replace_derived_ones() -> None:
    host, here = Host(RATES, RATES), machine(gpu(0), gpu(1))
    outcome = bench_link.measure(host, here, 10.0)  # type: ignore[arg-type]
    assert isinstance(outcome, Found) and [order for order, _ in host.asked] == ["0", "1"]
    found = bench_link.apply(here, outcome.value).gpus[1]
    pinned = found.h2d_pinned_bps
    assert pinned is not None and pinned.source is Source.MEASURED
    assert (pinned.value, pinned.spread) == (23.5e9, 0.5e9)
    assert found.h2d_pageable_bps is not None and found.h2d_pageable_bps.value == 14e9
    assert found.memory_bps is not None and found.memory_bps.value == 605e9
    assert not found.unified


@pytest.mark.parametrize(
    ("nominal", "copied", "taken"),
    [(700e9, 605e9, 700e9), (700e9, 300e9, 300e9), (700e9, 800e9, 800e9), (None, 605e9, 605e9)],
)
def test_a_copy_confirms_the_nominal_rate_or_replaces_it(nominal: float | None, copied: float, taken: float) -> None:
    known = None if nominal is None else Reading(nominal, Source.DERIVED)
    assert bench_link.memory_rate(known, Reading(copied, Source.MEASURED)).value == taken


def test_a_device_that_dies_is_left_out_and_the_next_one_measured() -> None:
    host, here = Host(CompletedRun(-11, stderr="Segmentation fault\x1b[0m"), RATES), machine(gpu(0), gpu(1))
    outcome = bench_link.measure(host, here, 10.0)  # type: ignore[arg-type]
    assert isinstance(outcome, Found)
    assert "CUDA0: died in the probe (its process ended with status -11" in outcome.note and "\x1b" not in outcome.note
    assert [left.id for left in bench_link.apply(here, outcome.value).gpus] == ["CUDA1"]


def test_shared_memory_is_what_allocation_does() -> None:
    outcome = bench_link.measure(Host({**RATES, "shared": True}), machine(gpu(0)), 10.0)  # type: ignore[arg-type]
    assert isinstance(outcome, Found) and "shares RAM" in outcome.note
    assert bench_link.apply(machine(gpu(0)), outcome.value).gpus[0].unified


def test_without_a_driver_nothing_changes() -> None:
    absent = {"absent": "the CUDA driver library does not load"}
    outcome = bench_link.measure(Host(absent), machine(gpu(0)), 10.0)  # type: ignore[arg-type]
    assert outcome == Absent("CUDA0: the CUDA driver library does not load")


@pytest.mark.parametrize(
    ("run", "died"),
    [
        (CompletedRun(0, ""), "status 0"),
        (CompletedRun(None, problem="did not end within 23 s"), "did not end within 23 s"),
        (CompletedRun(0, "[]\n"), "status 0"),
        (CompletedRun(0, '{"died": "cuInit: no\\u001b (3)"}'), "cuInit: no (3)"),
    ],
)
def test_answers_of_a_device_that_died(run: CompletedRun, died: str) -> None:
    assert died in bench_link.parse(run)["died"]


def test_only_cuda_is_measured() -> None:
    assert bench_link.nothing(machine()) == "no GPU"
    assert "not for vulkan" in bench_link.nothing(machine(gpu(0, Backend.VULKAN)))
    assert bench_link.nothing(machine(gpu(0))) == ""
