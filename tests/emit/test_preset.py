from __future__ import annotations

import configparser
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emit import argv
from emit.flags import parse_argv
from emit.preset import preset
from planner.errors import EngineError, OptionError
from planner.facts.workload import Workload
from planner.plans.plan import Plan
from planner.plans.settings import LoadMode
from tests.builders import make_model
from tests.emit.plans import NASTY, make_plan, refused_plan

PLAIN = st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Co", "Zl", "Zp"]), min_size=1, max_size=30)


def parsed(text: str) -> configparser.ConfigParser:
    """The file by llama.cpp's rules: only ``=`` separates, ``;`` and ``#`` end a value, nothing is replaced."""
    reader = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=True, comment_prefixes=("#", ";"))
    reader.optionxform = str  # type: ignore[method-assign,assignment]
    reader.read_string(text.replace("version = 1", "[file]\nversion = 1"))
    return reader


def command(plan: Plan) -> list[str]:
    """What the router makes of the section: every key as a long flag."""
    (name,) = (name for name in parsed(preset(plan)).sections() if name != "file")
    words: list[str] = []
    for key, value in parsed(preset(plan)).items(name):
        words += [f"--{key}"] if value == "true" else [f"--no-{key}"] if value == "false" else [f"--{key}", value]
    return words


def test_the_section_says_the_same_as_the_command() -> None:
    plan = make_plan(make_model(path="/models/a b.gguf"))
    settings = replace(plan.chosen.settings, op_offload=False, repack=False, kv_unified=True, load_mode=LoadMode.MMAP)
    plan = replace(plan, chosen=replace(plan.chosen, settings=settings))
    found = parse_argv(("llama-server", *command(plan)), plan.model, plan.machine)
    assert (found.settings, found.model_path, found.fit) == (settings, "/models/a b.gguf", False)
    flags = {item.setting for item in argv.flags(plan)}
    assert len(command(plan)) == 2 * (len(flags) - 2) - 3, "all but host and port, three of them switches"


@given(PLAIN)
def test_a_path_comes_back_or_is_refused(name: str) -> None:
    plan = make_plan(make_model(path=f"/m/{name}"))
    if set(name) & set(";#") or name[-1].isspace():
        with pytest.raises(OptionError, match="--format preset"):
            preset(plan)
    else:
        assert command(plan)[:2] == ["--model", f"/m/{name}"]


@pytest.mark.parametrize("path", NASTY)
def test_nasty_paths_never_change_another_line(path: str) -> None:
    try:
        text = preset(make_plan(make_model(path=path)))
    except OptionError as error:
        assert error.advice == "a link to the file under another name will do"
    else:
        usual = preset(make_plan()).splitlines()
        assert [a for a, b in zip(text.splitlines(), usual, strict=True) if a != b][1:] == [f"model = {path}"]


def test_the_router_keeps_its_own_address() -> None:
    text = preset(make_plan())
    assert "# Start: llama-server --host 127.0.0.1 --port 8080 --models-preset THIS-FILE\n" in text
    assert "\nhost =" not in text and "\nport =" not in text


def test_a_build_without_a_router_is_refused() -> None:
    plan = make_plan(workload=Workload(target_build=7388))
    with pytest.raises(EngineError, match="b7389"):
        preset(plan)
    assert "version = 1" in preset(replace(plan, workload=Workload(target_build=7389)))


def test_a_refusal_has_no_section() -> None:
    text = preset(refused_plan())
    assert text.startswith("# Does not fit") and "[" not in text and "Nothing to start" in text
