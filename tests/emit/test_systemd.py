from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emit import argv
from emit.systemd import systemd, word
from planner.errors import OptionError
from planner.facts.machine import Os
from planner.facts.workload import Target, Workload
from planner.plans.plan import Plan
from tests.builders import make_model
from tests.emit.plans import NASTY, make_plan, measured_machine, refused_plan

ANY = st.binary(max_size=60).map(lambda data: os.fsdecode(data.replace(b"\0", b""))) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30
)
"""Words that a file system or a person can write; bytes that are no UTF-8 are surrogates in Python."""
_WORD = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\s"\\]+))', re.DOTALL)


def systemd_words(line: str) -> list[str]:
    """Words by systemd's rules: quotes and C escapes first, then ``%%``, then ``$$``."""
    words = []
    while line.strip():
        found = _WORD.match(line)
        assert found, line
        words.append(found[2] if found[1] is None else _unescaped(found[1]))
        line = line[found.end() :]
    assert all(not re.search(r"(?<!%)(?:%%)*%(?!%)|(?<!\$)(?:\$\$)*\$(?!\$)", text) for text in words)
    return [text.replace("%%", "%").replace("$$", "$") for text in words]


def _unescaped(text: str) -> str:
    raw = re.sub(r"\\(x[0-9a-f]{2}|[\"\\])", lambda found: _byte(found[1]), text)
    return raw.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _byte(escape: str) -> str:
    return bytes([int(escape[1:], 16)]).decode("utf-8", "surrogateescape") if len(escape) > 1 else escape


def started(plan: Plan) -> list[str]:
    text = systemd(plan)
    assert text.count("\nExecStart=") == 1
    lines = text.partition("\nExecStart=")[2].partition("\nRestart=")[0]
    return systemd_words(lines.replace(" \\\n", " "))


@given(ANY)
def test_any_word_survives(token: str) -> None:
    assert systemd_words(word(token)) == [token]


@pytest.mark.parametrize("path", NASTY)
def test_the_unit_starts_the_same_command(path: str) -> None:
    plan = make_plan(make_model(path=f"/m/{path}"))
    assert started(plan) == list(argv.argv(plan))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", systemd(plan))


@pytest.mark.parametrize("path", ["/opt/it's/llama-server", "/o p/$x/llama-server", "/a=b\\c/llama-server"])
def test_a_program_that_systemd_would_not_take_is_started_by_a_shell(path: str) -> None:
    engine = replace(measured_machine().engine, server=path)  # type: ignore[type-var]
    plan = make_plan(machine=measured_machine(engine=engine))
    words = started(plan)
    if re.fullmatch(r"[\w=/-]+", path):
        assert words == list(argv.argv(plan))
    else:
        assert words[:3] == ["/bin/sh", "-c", 'exec "$0" "$@"'] and words[3:] == list(argv.argv(plan))


def test_memory_that_is_pinned_lifts_the_limit() -> None:
    plan = make_plan()
    assert "\nLimitMEMLOCK=infinity\n" in systemd(plan)
    host = replace(plan.chosen.memory.host, pinned_bytes=0)
    mapped = replace(plan, chosen=replace(plan.chosen, memory=replace(plan.chosen.memory, host=host)))
    assert "LimitMEMLOCK" not in systemd(mapped)


@pytest.mark.parametrize("path", ["/m/plain.gguf", *(f"/m/{path}" for path in NASTY)])
def test_systemd_accepts_the_unit(path: str, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze")
    engine = replace(measured_machine().engine, server="/bin/sh")  # type: ignore[type-var]
    unit = tmp_path / "model.service"
    unit.write_text(systemd(make_plan(make_model(path=path), measured_machine(engine=engine))), encoding="utf-8")
    done = subprocess.run([program, "verify", str(unit)], capture_output=True, text=True, check=False)
    if "Failed to" in done.stderr and "manager" in done.stderr:
        pytest.skip("systemd-analyze has no manager here")
    assert (done.returncode, done.stderr) == (0, "")


def test_other_systems_and_engines_are_refused() -> None:
    with pytest.raises(OptionError, match="a Linux machine"):
        systemd(make_plan(machine=measured_machine(os=Os.WINDOWS)))
    with pytest.raises(OptionError, match="--format systemd"):
        systemd(make_plan(workload=Workload(target=Target.BIGMOE)))
    assert started(make_plan(workload=Workload(target=Target.IK)))[0] == "llama-server"


def test_a_refusal_starts_nothing() -> None:
    assert all(line.startswith("# ") for line in systemd(refused_plan()).splitlines())
