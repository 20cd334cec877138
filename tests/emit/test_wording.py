from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emit import wording
from planner import units
from planner.facts.reading import Reading, Source
from planner.plans.decision import Evidence
from planner.plans.memory import Memory, joined
from planner.plans.plan import Candidate, Shortfall
from planner.plans.speed import Band
from planner.units import GIB, MIB
from tests.builders import make_gpu, make_machine, make_settings
from tests.emit.plans import make_candidate, make_decision, make_plan, measured_machine, refused_plan


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [bold] :smile: ü 漢 😀", "plain [bold] :smile: ü 漢 😀"),
        ("a\x1b[31mb\n\t\x7f\x85", "a\\x1b[31mb\\x0a\\x09\\x7f\\x85"),
        ("\u202eabc\u2066\u200b\ufeff\u2028", "\\u202eabc\\u2066\\u200b\\ufeff\\u2028"),
        ("\udcff\U000e0001", "\\udcff\\U000e0001"),
    ],
)
def test_clean(text: str, shown: str) -> None:
    assert wording.clean(text) == shown


@given(st.text())
def test_clean_leaves_nothing_unsafe(text: str) -> None:
    assert not any(map(wording.is_unsafe, wording.clean(text)))


@pytest.mark.parametrize(("value", "shown"), [(4180.4, "4,180"), (41.94, "41.9"), (0.714, "0.71"), (0.0, "0.00")])
def test_number(value: float, shown: str) -> None:
    assert units.number(value) == shown


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (units.counted(1, "token"), "1 token"),
        (units.counted(0, "token"), "0 tokens"),
        (units.counted(16384, "token"), "16,384 tokens"),
        (units.counted(2, "copy", "copies"), "2 copies"),
        (wording.evidence(Evidence("slots", 1, "slots", Source.REPORTED)), "1 slot"),
        (wording.evidence(Evidence("slots", 4, "slots", Source.REPORTED)), "4 slots"),
    ],
)
def test_one_is_no_plural(found: str, shown: str) -> None:
    assert found == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(10.23, "10.2 s"), (119.6, "120 s"), (120, "2 min 0 s"), (200.4, "3 min 20 s"), (599.7, "10 min"),
     (1882, "31 min"), (3599, "1 h 0 min"), (27840, "7 h 44 min")],
)  # fmt: skip
def test_long_turns_read_as_minutes_and_hours(seconds: float, shown: str) -> None:
    assert units.duration(seconds) == shown
    spoken = wording.band(Band(seconds / 2, seconds, seconds * 2), "s")
    assert spoken.startswith(shown)


def test_two_speeds_show_the_digits_that_tell_them_apart() -> None:
    assert units.apart(103.0, 60.3) == ("103", "60.3")
    assert units.apart(0.0641, 0.0608) == ("0.0641", "0.0608")
    assert units.apart(2.0, 2.0) == ("2", "2")


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (3 * GIB, "bytes", "3.0 GiB (3,221,225,472 B)"),
        (12, "bytes", "12 B"),
        (55.1e9, "bytes/s", "55.1 GB/s"),
        (0.25, "s", "0.25 s"),
        (16384, "tokens", "16,384 tokens"),
        ("not given", "tokens", "not given tokens"),
        (True, "", "yes"),
        (None, "cores", "unknown cores"),
    ],
)
def test_evidence(value: float, unit: str, shown: str) -> None:
    assert wording.evidence(Evidence("x", value, unit, Source.DERIVED)) == shown


def test_a_decision_in_bytes_reads_as_mib() -> None:
    kept = make_decision(value=GIB, because=(Evidence("kept free", GIB, "bytes", Source.USER),))
    assert wording.decided(kept) == "1,024 MiB" and wording.decided(make_decision()) == "2"


def test_a_count_of_nothing_is_no_size_though_its_bytes_are_nothing_too() -> None:
    none = make_decision(value=0, because=(Evidence("routed experts in RAM", 0, "bytes", Source.DERIVED),))
    assert wording.decided(none) == "0"


def test_headline_holds_verdict_speed_and_headroom() -> None:
    assert wording.headline(make_plan()) == (
        "Fits: Hand made on CUDA0 with 4,096 tokens of context; decode 40.0 tok/s (32.0 to 48.0), "
        "prefill 1,000 tok/s (800 to 1,200), a turn in 16.9 s (14.0 to 20.0); 13,312 MiB of CUDA0 stay free."
    )


def test_headline_says_what_is_assumed() -> None:
    machine = measured_machine()
    guess = Reading(50e9, Source.ASSUMED)
    text = wording.headline(make_plan(machine=replace(machine, ram=replace(machine.ram, read_bps=guess))))
    assert text.endswith("The speed rests on assumed rates: RAM 50 GB/s.")
    bare = replace(machine, ram=replace(machine.ram, read_bps=None), gpus=(make_gpu(),))
    assert "assumed rates: RAM 50 GB/s, CUDA0 memory 300 GB/s and 2 more." in wording.headline(make_plan(machine=bare))


def test_headline_without_gpu_speaks_of_ram() -> None:
    machine = replace(make_machine(), ram=measured_machine().ram)
    text = wording.headline(make_plan(machine=machine, settings=make_settings(devices=(), n_gpu_layers=0)))
    assert "on the CPU" in text and "of RAM stay free" in text


def test_headline_of_what_does_not_fit() -> None:
    assert (
        wording.headline(refused_plan())
        == "Does not fit: Hand made. No placement keeps the headroom; CUDA0 lacks 2,048 MiB of its headroom."
    )
    plan = make_plan()
    short = make_candidate(plan.chosen.settings, plan.machine, shortfalls=(Shortfall("CUDA0", 3 * GIB, GIB),))
    assert wording.headline(replace(plan, chosen=short)).endswith("CUDA0 lacks 2,048 MiB of its headroom.")


def test_a_shortage_is_one_number_and_says_what_of_it_is_headroom() -> None:
    memory = make_plan().chosen.memory
    device, host = memory.devices[0], replace(memory.host, available_bytes=8 * GIB)
    small = replace(device, total_bytes=device.used_before_bytes + device.predicted_bytes - GIB)
    memory = replace(memory, devices=(small,), host=host)
    room = small.total_bytes - small.used_before_bytes
    lacking = Shortfall("CUDA0", small.predicted_bytes, room - 512 * MIB)
    assert wording.lack(lacking, memory) == "lacks 1,536 MiB, 512 MiB of headroom included"
    assert wording.lack(replace(lacking, available_bytes=room), memory) == "lacks 1,024 MiB"
    ram = Shortfall("host", host.unevictable_bytes, host.unevictable_bytes - GIB)
    kept = 8 * GIB - ram.available_bytes
    assert kept > GIB and wording.lack(ram, memory) == "lacks 1,024 MiB of its headroom"
    pinned = Shortfall("host", 5 * GIB, 4 * GIB)
    assert wording.lack(pinned, memory) == "lacks 1,024 MiB"


def sharing(available: int, *gpus: str) -> Candidate:
    """2 GiB on each device and 1,088 MiB on the host, all of them in RAM; every device may take 16 GiB."""
    machine = measured_machine(gpus=tuple(make_gpu(name, unified=True, used_bytes=0) for name in gpus))
    machine = replace(machine, ram=replace(machine.ram, available_bytes=available))
    candidate = make_candidate(make_settings(devices=gpus), machine)
    memory = candidate.memory
    return replace(candidate, memory=joined(memory.devices, memory.host, frozenset(gpus)))


def test_free_memory_that_is_shared_is_told_once() -> None:
    device = sharing(8 * GIB, "MTL0").memory.devices[0].predicted_bytes
    left = 8 * GIB - device - 1088 * MIB
    assert wording.free(sharing(8 * GIB, "MTL0")) == f"{left / GIB:.1f} GiB of RAM, which MTL0 shares, stay free"
    two = wording.free(sharing(8 * GIB, "Vulkan0", "Vulkan1"))
    assert two == f"{(left - device) / GIB:.1f} GiB of RAM, which Vulkan0 and Vulkan1 share, stay free"
    assert wording.free(sharing(2 * GIB, "MTL0")) == "1.1 GiB more than RAM, which MTL0 shares, holds"
    wide = sharing(60 * GIB, "MTL0")
    assert wording.free(wide) == f"{wide.memory.devices[0].room_bytes // MIB:,} MiB of MTL0 stay free"


def test_free_memory_of_a_card_beside_one_that_shares_ram() -> None:
    candidate = sharing(4 * GIB, "CUDA0", "Vulkan0")
    memory: Memory = joined(
        tuple(replace(d, shared_free_bytes=None) for d in candidate.memory.devices),
        replace(candidate.memory.host, shared_bytes=0),
        frozenset({"Vulkan0"}),
    )
    said = wording.free(replace(candidate, memory=memory))
    assert said.startswith("14,336 MiB of CUDA0 and ") and said.endswith("of RAM, which Vulkan0 shares, stay free")
