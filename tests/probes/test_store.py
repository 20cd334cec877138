from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from planner.facts.machine import Cpu, Machine, Os, Ram
from probes import store
from probes.host import STALE_S, LocalHost

MACHINE = Machine(Os.LINUX, Ram(16 << 30, 8 << 30), Cpu("Some CPU", 8, 4, 16))
ENTRY = store.Entry({"a": [1, 2.5]}, "fine", "2026-01-02", 1.5)


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    return LocalHost(cache_dir=str(tmp_path))


def test_what_was_kept_comes_back(host: LocalHost, tmp_path: Path) -> None:
    store.save(host, "disk", ("a", "b"), ENTRY)
    assert store.load(host, "disk", ("a", "b")) == ENTRY
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]
    store.save(host, "disk", ("a", "b"), replace(ENTRY, note="better"))
    found = store.load(host, "disk", ("a", "b"))
    assert found is not None and found.note == "better"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("probe", "about"), [("disk", ("a",)), ("disk", ("ab", "")), ("ram", ("a", "b")), ("disk", ())]
)
def test_it_holds_for_nothing_else(host: LocalHost, probe: str, about: tuple[str, ...]) -> None:
    store.save(host, "disk", ("a", "b"), ENTRY)
    assert store.load(host, probe, about) is None


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "moeplan.measured/0"},
        {"probe": "ram"},
        {"about": ["other"]},
        {"figures": []},
        {"note": 5},
        {"when": None},
        {"duration_s": -1},
        {"duration_s": "1"},
    ],
)
def test_a_record_that_says_something_else(host: LocalHost, tmp_path: Path, change: dict[str, object]) -> None:
    store.save(host, "disk", ("a",), ENTRY)
    [path] = tmp_path.iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert store.load(host, "disk", ("a",)) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, "\x00"])
def test_a_damaged_record(host: LocalHost, tmp_path: Path, text: str) -> None:
    store.save(host, "disk", ("a",), ENTRY)
    [path] = tmp_path.iterdir()
    path.write_text(text)
    assert store.load(host, "disk", ("a",)) is None


def test_free_memory_is_no_part_of_the_machine() -> None:
    busy = replace(MACHINE, ram=replace(MACHINE.ram, available_bytes=1 << 30))
    assert store.machine_key(busy) == store.machine_key(MACHINE)
    larger = replace(MACHINE, ram=Ram(32 << 30))
    assert store.machine_key(larger) != store.machine_key(MACHINE)


def test_parts_of_killed_writers_go(host: LocalHost, tmp_path: Path) -> None:
    old, new = tmp_path / "x.json.1-2.part", tmp_path / "y.json.3-4.part"
    for path in (old, new):
        path.write_text("{")
    past = old.stat().st_mtime - 2 * STALE_S
    os.utime(old, (past, past))
    store.save(host, "disk", (), ENTRY)
    assert not old.exists() and new.exists()
