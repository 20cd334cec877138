from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emit import argv
from emit.llama_swap import llama_swap
from planner.errors import EngineError, OptionError
from planner.facts.machine import Os
from planner.facts.workload import Target, Workload
from planner.plans.plan import Plan
from tests.builders import make_model
from tests.emit.plans import NASTY, make_plan, measured_machine, refused_plan

yaml = pytest.importorskip("yaml")
NAMES = st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"]), min_size=1, max_size=30)


def command(plan: Plan) -> str:
    """``cmd`` after llama-swap replaced the port, which is the only macro."""
    (model,) = yaml.safe_load(llama_swap(plan))["models"].values()
    assert model["proxy"] == "http://127.0.0.1:${PORT}" and model["ttl"] == 0
    text: str = model["cmd"].replace("${PORT}", "8080")
    assert not re.search(r"\$\{", text), "llama-swap takes it for a macro"
    assert "\n" not in text
    return text


def windows_words(line: str) -> list[str]:
    """How a Windows program takes a line apart: backslashes count only before a quote."""
    words, word, quoted, index = [], "", False, 0
    while index < len(line):
        slashes = len(line[index:]) - len(line[index:].lstrip("\\"))
        index += slashes
        char = line[index : index + 1]
        if slashes and char == '"':
            word += "\\" * (slashes // 2)
            if slashes % 2:
                word, index = word + '"', index + 1
            continue
        word += "\\" * slashes
        if char == '"':
            quoted = not quoted
        elif char == " " and not quoted:
            words, word = [*words, word], ""
        else:
            word += char
        index += 1
    return [*words, word]


@given(NAMES)
@pytest.mark.parametrize("windows", [False, True])
def test_the_command_comes_back(windows: bool, name: str) -> None:
    machine = measured_machine(os=Os.WINDOWS if windows else Os.LINUX)
    plan = make_plan(make_model(path=f"/m/{name}"), machine)
    words = windows_words(command(plan)) if windows else shlex.split(command(plan))
    assert words == list(argv.argv(plan))


@pytest.mark.parametrize("path", [*NASTY, "${HOME}/${env.SECRET}.gguf", "a${PORT}b.gguf", "# x.gguf", "end\\"])
def test_nasty_paths(path: str) -> None:
    plan = make_plan(make_model(path=path))
    if "\n" in path:
        with pytest.raises(OptionError, match="--format llama-swap"):
            llama_swap(plan)
    else:
        assert shlex.split(command(plan)) == list(argv.argv(plan))


def test_no_comment_holds_a_macro() -> None:
    plan = make_plan(make_model(name="${env.HOME} ${X}"))
    comments = [line for line in llama_swap(plan).splitlines() if line.startswith("#")]
    assert "$ {env.HOME} $ {X}" in comments[0] and all("${" not in line for line in comments)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(OptionError, match=r"--format llama-swap.*\\udcff"):
        llama_swap(make_plan(make_model(path="a\udcff.gguf")))


def test_another_engine_needs_a_server() -> None:
    plan = make_plan(workload=Workload(target=Target.IK))
    assert shlex.split(command(plan)) == list(argv.argv(plan))
    with pytest.raises(OptionError, match=r"llama\.cpp or ik_llama\.cpp"):
        llama_swap(replace(plan, workload=Workload(target=Target.BIGMOE)))


def test_a_refusal_has_no_model_and_too_old_is_an_error() -> None:
    assert yaml.safe_load(llama_swap(refused_plan())) == {"models": {}}
    settings = replace(make_plan().chosen.settings, moe_cache_mib=64)
    with pytest.raises(EngineError):
        llama_swap(make_plan(settings=settings, workload=Workload(target_build=9000)))
