from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emit import argv, shell
from emit.flags import parse_argv
from planner.plans.plan import Plan
from tests.builders import make_model
from tests.emit.plans import NASTY, make_plan, measured_machine

SHELLS = [name for name in ("sh", "bash", "dash", "zsh") if shutil.which(name)]
SHOW = "import json,sys; sys.stdout.write(json.dumps(sys.argv[1:]))"


def nasty_plan(path: str) -> Plan:
    engine = replace(measured_machine().engine, server=f"/opt/{path}/llama-server")  # type: ignore[type-var]
    return make_plan(make_model(path=path), measured_machine(engine=engine))


def run(name: str, script: str, *, python: str) -> list[str]:
    """The words a shell makes of a script whose command is replaced by one that shows its arguments."""
    done = subprocess.run(
        [name, "-c", script], capture_output=True, check=True, env={"PY": python, "LC_ALL": "C.UTF-8"}
    )
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.fixture
def python() -> str:
    import sys

    return sys.executable


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("path", NASTY)
def test_sh_gives_the_same_words(name: str, path: str, python: str) -> None:
    plan = nasty_plan(path)
    script = shell.sh(plan)
    subprocess.run([name, "-n"], input=script.encode(), check=True)
    body = script[script.index(shell.quote_sh(argv.program(plan))) :]
    assert run(name, f'"$PY" -c {shell.quote_sh(SHOW)} {body}', python=python) == list(argv.argv(plan))


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
def test_any_word_survives_sh(word: str) -> None:
    import sys

    script = f'"$PY" -c {shell.quote_sh(SHOW)} {shell.quote_sh(word)}'
    assert run("sh", script, python=sys.executable) == [word]


@pytest.mark.parametrize("path", NASTY)
def test_scripts_hold_nothing_that_steers_a_terminal(path: str) -> None:
    plan = nasty_plan(path)
    for text in (shell.sh(plan), shell.ps1(plan), shell.env(plan)):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_sh_starts_with_what_it_does() -> None:
    lines = shell.sh(make_plan()).splitlines()
    assert lines[0] == "#!/bin/sh" and lines[1].startswith("# Fits: Hand made on CUDA0")
    assert "# example: Mind the gap." in lines
    assert lines[-1] == "  --port 8080" and all(line.endswith(" \\") for line in lines[3:-1])


PS_WORD = re.compile(
    r"\((?P<expr>(?:'(?:[^'\u2018-\u201b]|(['\u2018-\u201b])\2)*'|\[char\]::ConvertFromUtf32\(\d+\)|\s\+\s)+)\)"
    r"|'(?P<quoted>(?:[^'\u2018-\u201b]|(['\u2018-\u201b])\4)*)'|(?P<bare>[A-Za-z0-9_-]+)"
)


def powershell_words(script: str) -> list[str]:
    """The arguments PowerShell would pass, by its rules for single quotes, ``[char]`` expressions and backticks."""
    text = script[script.index("& ") + 2 :].replace(" `\n", " ").rstrip("\n")
    words = []
    while text:
        match = PS_WORD.match(text)
        assert match, text
        words.append(_ps_value(match))
        text = text[match.end() :].lstrip(" ")
    return words


def _ps_value(match: re.Match[str]) -> str:
    if match["bare"] is not None:
        return match["bare"]
    if match["quoted"] is not None:
        return re.sub(r"(['\u2018-\u201b])\1", r"\1", match["quoted"])
    parts = re.findall(r"'((?:[^'\u2018-\u201b]|(['\u2018-\u201b])\2)*)'|ConvertFromUtf32\((\d+)\)", match["expr"])
    return "".join(chr(int(code)) if code else re.sub(r"(['\u2018-\u201b])\1", r"\1", text) for text, _, code in parts)


@pytest.mark.parametrize("path", NASTY)
def test_ps1_gives_the_same_words(path: str) -> None:
    plan = nasty_plan(path)
    assert powershell_words(shell.ps1(plan)) == list(argv.argv(plan))


def test_ps1_quotes_what_powershell_would_take_apart() -> None:
    assert shell.quote_ps("3,1") == "'3,1'" and shell.quote_ps("CUDA0,CUDA1") == "'CUDA0,CUDA1'"
    assert shell.quote_ps("--n-cpu-moe") == "--n-cpu-moe" and shell.quote_ps("-a.b") == "'-a.b'"


@pytest.mark.parametrize("path", NASTY)
def test_env_and_its_rest_start_the_same_server(path: str, python: str) -> None:
    plan = nasty_plan(path)
    pairs, rest = shell.variables(argv.flags(plan))
    show = "import json,os,sys; sys.stdout.write(json.dumps({k:v for k,v in os.environ.items() if 'LLAMA' in k}))"
    script = f'set -a\n{shell.env(plan)}\n"$PY" -c {shell.quote_sh(show)}'
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, check=True, env={"PY": python, "LC_ALL": "C.UTF-8"}
    )
    assert json.loads(done.stdout) == dict(pairs)
    words = (*(f"{name}={value}" for name, value in pairs), "llama-server", *rest)
    parsed = parse_argv(words, plan.model, plan.machine)
    assert (parsed.settings, parsed.model_path, parsed.fit) == (plan.chosen.settings, path, False)


def test_env_says_what_has_no_variable() -> None:
    plan = make_plan()
    settings = replace(plan.chosen.settings, threads_batch=6, op_offload=False, repack=False)
    text = shell.env(replace(plan, chosen=replace(plan.chosen, settings=settings)))
    assert "Start: llama-server -tb 6 --no-op-offload\n" in text and "LLAMA_ARG_REPACK=0\n" in text
