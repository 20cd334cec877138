"""Kept answers: found again while nothing changed, and never trusted blindly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.facts.allocation import Allocation
from planner.units import MIB
from probes import oracle_store
from probes.host import LocalHost

ROWS = (Allocation("CUDA0", 5 * MIB, 6 * MIB, 7 * MIB), Allocation("Host", 1 * MIB, 2 * MIB, 3 * MIB))


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    return LocalHost(cache_dir=str(tmp_path / "cache"))


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "llama-fit-params"
    path.write_text("")
    return str(path)


def kept(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "oracle.json"


def test_an_answer_is_found_again(host: LocalHost, program: str) -> None:
    name = oracle_store.key(host, program, "model", "settings")
    assert oracle_store.load(host, name) is None
    oracle_store.store(host, name, ROWS)
    assert oracle_store.load(host, name) == ROWS


def test_its_name_is_model_engine_and_settings(host: LocalHost, program: str, tmp_path: Path) -> None:
    name = oracle_store.key(host, program, "model", "settings")
    assert name == oracle_store.key(host, program, "model", "settings")
    others = {oracle_store.key(host, program, *question) for question in (("m", "settings"), ("model", "s"))}
    (tmp_path / "libllama.so").write_text("rebuilt")
    others.add(oracle_store.key(host, program, "model", "settings"))
    assert len(others) == 3 and name not in others
    assert oracle_store.key(host, str(tmp_path / "nothing"), "model", "settings") is None


@pytest.mark.parametrize(
    "damage",
    [
        "", "{", "null", "[]", "[" * 99999, '{"answers": 3}', '{"answers": {"%s": 3}}', '{"answers": {"%s": []}}',
        '{"answers": {"%s": [["Host", 1, 2]]}}', '{"answers": {"%s": [["Host", 1, 2, "3"]]}}',
        '{"answers": {"%s": [["Host", 1, 2, -3]]}}', '{"answers": {"%s": [["CUDA0", 1, 2, 3]]}}',
        '{"answers": {"%s": [["Host", true, 2, 3]]}}', '{"answers": {"%s": [["Host", 1, 2, NaN]]}}',
    ],
)  # fmt: skip
def test_damage_is_no_answer_and_is_overwritten(host: LocalHost, program: str, tmp_path: Path, damage: str) -> None:
    name = oracle_store.key(host, program, "model", "settings")
    kept(tmp_path).parent.mkdir()
    kept(tmp_path).write_text(damage.replace("%s", str(name)))
    assert oracle_store.load(host, name) is None
    oracle_store.store(host, name, ROWS)
    assert oracle_store.load(host, name) == ROWS


def test_it_does_not_grow_without_end(host: LocalHost, tmp_path: Path) -> None:
    names = [f"{i:064x}" for i in range(oracle_store.MAX_ANSWERS)]
    answers = {name: [["Host", 1, 2, 3]] for name in names}
    kept(tmp_path).parent.mkdir()
    kept(tmp_path).write_text(json.dumps({"answers": answers}))
    oracle_store.store(host, "new", ROWS)
    found = list(json.loads(kept(tmp_path).read_text())["answers"])
    assert found == [*names[1:], "new"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, program: str) -> None:
    (tmp_path / "file").write_text("")
    host = LocalHost(cache_dir=str(tmp_path / "file" / "cache"))
    name = oracle_store.key(host, program, "model", "settings")
    oracle_store.store(host, name, ROWS)
    assert oracle_store.load(host, name) is None
