"""``moeplan verify`` and ``run`` on the real llama-server and on the embedded engine, where nothing goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.demo import DemoModel
from planner.errors import MoeplanError, OptionError
from planner.facts.workload import Workload
from planner.pipeline import plan_to_start
from planner.request import Request
from planner.verification import looking
from planner.verification.startable import own_arguments
from probes import llama_find, ports
from probes.host import LocalHost
from probes.llama_find import Place
from tests.emit.verifications import make_verification

Run = Callable[..., subprocess.CompletedProcess[str]]
ONE = ("--fit", "--pin", "threads=1", "--pin", "threads-batch=1")
posix = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in programs are scripts")


def result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["verdict"] in ("verified", "slower"), found["reason"]
    return found


def test_trials_run_and_say_their_numbers(run: Run, random_demo: DemoModel, engine: Path) -> None:
    options = ("--max-trials", "3", "--budget", "90", "--prompt-tokens", "1024")
    done = run("verify", random_demo.path, *ONE, *options, "--json", "--llama", engine)
    found = result(done)
    assert {item["term"] for item in found["observed"]} >= {"prefill", "decode", "Host model", "Host context"}
    assert all(item["within"] for item in found["observed"] if item["unit"] == "bytes")
    assert len(found["trials"]) == 3 and all(trial["reason"] for trial in found["trials"])
    assert any(trial["pairs"] >= 4 and trial["error"] is not None for trial in found["trials"])
    assert found["answer"]["predicted_n"] > 0 and found["buffers"] and found["load_s"] > 0
    assert found["url"] is None and "moeplan" not in done.stdout.partition("{")[0]


def test_the_next_plan_says_that_it_was_verified(
    run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path
) -> None:
    own = {"XDG_CACHE_HOME": str(tmp_path / "own")}
    question = (random_demo.path, *ONE, "--llama", engine)
    assert "Verified on" not in run("plan", *question, env=own).stdout
    found = result(run("verify", *question, "--max-trials", "0", "--budget", "5", "--json", env=own))
    text = run("plan", *question, env=own).stdout
    what = "Verified" if found["verdict"] == "verified" else "It or its family of models ran"
    assert f"{what} on {found['when']}" in text and (", slower than predicted" in text) is (what != "Verified")
    data = json.loads(run("plan", *question, "--json", env=own).stdout)
    assert data["verified"] == found["correction"]
    other = json.loads(run("plan", *question, "--prompt-tokens", "999", "--json", env=own).stdout)
    assert other["verified"]["exact"] is False


@posix
def test_nothing_is_called_kept_that_could_not_be_stored(run: Run, random_demo: DemoModel, engine: Path) -> None:
    short = (random_demo.path, *ONE, "--max-trials", "0", "--budget", "0", "--llama", engine)
    done = run("verify", *short, env={"XDG_CACHE_HOME": "/dev/null"})
    assert "it could not be stored in /dev/null/moeplan: Not a directory" in " ".join(done.stdout.split())
    assert "kept for the next plan" not in done.stderr


def test_the_answer_goes_where_people_look(run: Run, random_demo: DemoModel, engine: Path) -> None:
    short = (random_demo.path, *ONE, "--max-trials", "0", "--budget", "0", "--llama", engine)
    text = run("verify", *short)
    found = json.loads(run("verify", *short, "--json").stdout)
    assert found["answer"] and found["answer"]["text"], found["reason"]
    assert "Observed against predicted" in text.stdout
    assert not text.stdout.startswith(("Verified", "Slower"))  # the answer comes first
    quiet = run("verify", *short, "--json", "-q")
    assert quiet.stderr == ""


@posix
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none/x.json", "none/x.json: No such file or directory"),
        ("folder", "folder: expected a file to write, found a folder"),
        ("/proc/x.json", "/proc/x.json: "),
        ("model", "an input of this very command"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_before_the_engine_starts(
    run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "folder").mkdir()
    path = str(random_demo.path) if name == "model" else name
    done = run("run", random_demo.path, *ONE, "--json", "-o", path, "--llama", engine)
    assert done.returncode == 3 and words in done.stderr
    assert "starting" not in done.stderr and "Traceback" not in done.stderr


@posix
def test_a_form_that_cannot_hold_the_plan_is_said_before_the_engine_starts(
    run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path
) -> None:
    odd = tmp_path / "a\nb.gguf"
    odd.symlink_to(random_demo.path)
    done = run("verify", odd, *ONE, "--format", "preset", "--llama", engine)
    assert done.returncode == 2 and "starting" not in done.stderr


@posix
@pytest.mark.parametrize(("form", "opening"), [("json", '{\n  "schema": "moeplan.verified/1"'), ("text", "Verified: ")])
def test_a_result_that_cannot_be_written_after_all_goes_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str, opening: str
) -> None:
    from emit.formats import Format
    from planner.cli.options import OutputOptions
    from planner.cli.verify import _deliver

    lost = _deliver(make_verification(), ((Format(form), str(tmp_path / "gone" / "x")),), OutputOptions(quiet=True), ())
    told = capsys.readouterr().err
    assert lost == 3 and "No such file or directory" in told and opening in told


def test_a_plan_file_is_verified_as_it_is(run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path) -> None:
    plan, checked = tmp_path / "plan.json", tmp_path / "verified.json"
    wanted = ("--ctx", "2048", "--pin", "n-ubatch=128", "--llama", engine)
    run("plan", random_demo.path, *ONE, *wanted, "--json", "-o", plan)
    short = ("--max-trials", "0", "--budget", "5", "--fit", "--llama", engine, "--json")
    done = run("verify", plan, *short, "-o", checked)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(checked.read_text())
    assert (found["plan"]["settings"]["n_ubatch"], found["plan"]["settings"]["n_ctx"]) == (128, 2048)
    again = result(run("verify", checked, *short))
    assert again["plan"]["settings"] == found["plan"]["settings"]
    assert run("verify", plan, *short, "--pin", "n-ubatch=64").returncode == 3
    assert "explain" not in run("explain", "-ub", "--plan", checked).stderr


def test_a_dry_run_starts_nothing(run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path) -> None:
    """In a cache of its own: what other tests taught under load is no part of this forecast."""
    own = {"XDG_CACHE_HOME": str(tmp_path / "own")}
    done = run("verify", random_demo.path, "--fit", "--dry-run", "--max-trials", "2", "--llama", engine, env=own)
    assert done.returncode == 0 and "starting" not in done.stderr
    assert "Would be tried, in this order" in done.stdout and "Observed" not in done.stdout
    tried = done.stdout.partition("Would be tried, in this order")[2].splitlines()
    rows = [line for line in tried if " yes " in line or " no " in line]
    assert sum(" yes " in row for row in rows) == 2
    assert all(" s " in row and ("unknown" in row or "%" in row) for row in rows)
    data = run("run", random_demo.path, "--fit", "--dry-run", "--json", "--llama", engine)
    assert json.loads(data.stdout)["schema"] == "moeplan.plan/1" and "Would be tried" in data.stderr


def test_a_key_that_the_server_wants_is_used(run: Run, random_demo: DemoModel, engine: Path) -> None:
    short = (random_demo.path, *ONE, "--max-trials", "0", "--budget", "0", "--json", "--llama", engine)
    assert result(run("verify", *short, "--", "--api-key", "secret"))["answer"]["predicted_n"] > 0


@pytest.mark.parametrize("where", ["file", "variable"])
def test_a_key_from_elsewhere_is_used_and_never_shown(
    run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path, where: str
) -> None:
    short = (random_demo.path, *ONE, "--max-trials", "0", "--budget", "0", "--json", "--llama", engine)
    keys = tmp_path / "keys"
    keys.write_text("# ours\n\nnot usable\ns3cret\nother\n")
    own = ("--", "--api-key-file", str(keys)) if where == "file" else ()
    done = run("verify", *short, *own, env={"LLAMA_API_KEY": "s3cret,other"} if where == "variable" else None)
    assert result(done)["answer"]["predicted_n"] > 0
    assert "s3cret" not in done.stdout + done.stderr


def test_an_answer_that_ends_at_once_is_timed_by_another(run: Run, random_demo: DemoModel, engine: Path) -> None:
    short = (random_demo.path, *ONE, "--max-trials", "0", "--budget", "0", "--json", "--llama", engine)
    eos = 257
    done = run("verify", *short, "--", "--logit-bias", f"{eos}+100")
    found = result(done)
    assert found["answer"]["text"] == "" and "the model answered nothing" in done.stderr
    assert {item["term"] for item in found["observed"]} >= {"prefill", "decode"}


def test_an_answer_may_be_asked_for_shorter_than_what_times_one(run: Run, random_demo: DemoModel, engine: Path) -> None:
    short = (random_demo.path, *ONE, "--max-trials", "0", "--budget", "0", "--json", "--llama", engine)
    found = result(run("verify", *short, "--prompt", "hi", "--answer-tokens", "2"))
    assert found["answer"]["predicted_n"] <= 2


@posix
@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (os.fsdecode(b"a\xff"), "--prompt: expected UTF-8 text, found another byte at 1"),
        ("@", "--prompt: expected a text, or a file after @, found '@' alone"),
        ("@large.txt", "--prompt: expected what fits a slot of 8,192 tokens, found 4,000,000 bytes"),
    ],
)
def test_a_prompt_that_cannot_be_asked_starts_nothing(
    run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path, prompt: str, words: str
) -> None:
    (tmp_path / "large.txt").write_text("a b " * 1_000_000)
    done = run("verify", random_demo.path, *ONE, "--ctx", "8192", "--prompt", prompt, "--llama", engine)
    assert done.returncode == 2 and words in done.stderr and "starting" not in done.stderr


def test_a_prompt_that_is_too_long_for_the_slot_is_named(
    run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path
) -> None:
    (tmp_path / "long.txt").write_text("a b " * 100_000)
    options = ("--ctx", "4096", "--prompt", "@long.txt", "--json")
    found = json.loads(run("verify", random_demo.path, *ONE, *options, "--llama", engine).stdout)
    assert found["verdict"] == "failed"
    assert "a slot of 4,096 tokens has no room for an answer to a prompt of at least " in found["reason"]


def test_refresh_measures_again(run: Run, random_demo: DemoModel, engine: Path) -> None:
    done = run("verify", random_demo.path, "--dry-run", "--refresh", "--llama", engine)
    assert done.returncode == 0 and "measuring RAM" in done.stderr
    assert run("verify", random_demo.path, "--fit", "--refresh", "--llama", engine).returncode == 2


def test_a_refused_plan_starts_nothing(run: Run, random_demo: DemoModel, engine: Path) -> None:
    done = run("run", random_demo.path, "--fit", "--ram", "1MiB", "--llama", engine)
    assert done.returncode == 1 and "starting" not in done.stderr and "Does not fit" in done.stdout


def test_what_cannot_be_started_is_said_before_anything(run: Run, random_demo: DemoModel, machine_file: Any) -> None:
    recorded = run("run", random_demo.path, "--machine", machine_file("desktop-16gb-wddm"))
    assert recorded.returncode == 2 and "--machine" in recorded.stderr
    assert run("run", random_demo.path, "--fit", "--target", "b10000").returncode == 2


@posix
def test_it_steps_back_from_a_device_without_room(
    run: Run, random_demo: DemoModel, engine: Path, rpc_server: str, tmp_path: Path
) -> None:
    """A server that finds no room on the device the first time; the real one after that."""
    folder = tmp_path / "first-time"
    folder.mkdir()
    program = folder / "llama-server"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = -m ] && mkdir "{folder}/once" 2>/dev/null; then\n'
        f'echo "cudaMalloc failed: out of memory" >&2; exit 1\nfi\nexec "{engine}/llama-server" "$@"\n'
    )
    program.chmod(0o755)
    short = (*ONE, "--max-trials", "0", "--budget", "5", "--json")
    found = result(run("verify", random_demo.path, *short, "--rpc", rpc_server, "--llama", folder))
    (step,) = found["steps_back"]
    assert step["reason"] == "GPU memory ran out" and step["changes"]
    changed = {change["setting"]: change["value"] for change in step["changes"]}
    assert all(found["plan"]["settings"].get(name, value) == value for name, value in changed.items() if value != "()")
    assert found["correction"]["kept"]
    assert {item["term"] for item in found["observed"]} >= {"RPC0 model", "RPC0 context"}


def test_the_embedded_engine_where_there_is_no_server(run: Run, random_demo: DemoModel, tmp_path: Path) -> None:
    if LocalHost().package("llama_cpp") is None:
        pytest.skip("the extra `embedded` is not installed")
    short = (*ONE, "--max-trials", "0", "--budget", "5", "--json")
    done = run("run", random_demo.path, *short, env={"PATH": str(tmp_path)})
    found = result(done)
    assert found["engine"].startswith("llama-cpp-python") and found["answer"]["predicted_n"] > 0
    assert found["url"] is None and "has no server to go on with" in done.stderr
    assert "only the embedded engine is here" in done.stderr.splitlines()[0]


@pytest.mark.parametrize("found", [None, Place(package="/site/llama_cpp")])
def test_the_engine_is_looked_for_before_anything_else(found: Place | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is not there stands for all that follows."""
    monkeypatch.setattr(llama_find, "find", lambda host, llama: found)
    notes: list[str] = []
    with pytest.raises(MoeplanError) as caught:
        plan_to_start(Request("nowhere.gguf", Workload()), notes.append)
    if found is None:
        assert str(caught.value).startswith("llama.cpp: expected a llama-server to start, found none") and not notes
    else:
        assert "nowhere.gguf" in str(caught.value) and "will not go on serving" in notes[0]


def test_own_arguments() -> None:
    own = own_arguments(("--port", "9000", "--api-key=k", "--slots", "--alias", "me"))
    assert (own.port, own.api_key, own.more) == (9000, "k", ("--api-key=k", "--slots", "--alias", "me"))
    assert own_arguments(()).port is None
    assert own_arguments(("--alias", "--port", "--api-key", "k1,k2")).more == (
        "--alias",
        "--port",
        "--api-key",
        "k1,k2",
    )
    assert own_arguments(("--api-key", "k1,k2")).api_key == "k1"
    assert own_arguments((), "e1,e2") == own_arguments((), "e1") and own_arguments((), "e1").api_key == "e1"
    assert own_arguments(("--api-key", "k1"), "e1").api_key == "k1"
    assert own_arguments((), "").api_key is None


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (("-hf", "x/y"), "another one"),
        (("--hf-repo", "x/y"), "another one"),
        (("--gpt-oss-20b-default",), "another one"),
        (("--api-key",), "nothing after it"),
        (("--alias",), "nothing after it"),
        (("--api-key", "a\nb"), "without blanks"),
        (("--api-key=",), "without blanks"),
        (("--api-key", "ключ"), "without blanks"),
        (("--api-key", "--slots"), "without blanks"),
    ],
)
def test_own_arguments_that_cannot_be(tokens: tuple[str, ...], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        own_arguments(tokens)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda plan: plan["workload"].update(prompt_tokens=-1), "workload.prompt_tokens"),
        (lambda plan: plan["workload"].update(prompt_tokens=10**400), "a number of 401 digits"),
        (lambda plan: plan.update(argv=[]), "in argv"),
        (lambda plan: plan.update(argv=["llama-server"]), "in argv"),
        (lambda plan: plan["argv"].extend(["--rpc", "10.0.0.1:50052"]), "a remote one at 10.0.0.1:50052"),
        (lambda plan: plan["argv"].extend(["--no-such", "x"]), "--no-such"),
        (lambda plan: plan["argv"].extend(["--lora", "x"]), "--lora"),
    ],
)
def test_a_hostile_plan_starts_nothing(
    run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path, change: Any, words: str
) -> None:
    plan = tmp_path / "plan.json"
    data = json.loads(run("plan", random_demo.path, "--fit", "--json", "--llama", engine).stdout)
    change(data)
    plan.write_text(json.dumps(data))
    done = run("verify", plan, "--fit", "--llama", engine)
    assert (done.returncode, done.stdout) == (3, "") and words in done.stderr and "starting" not in done.stderr


def test_variables_of_the_engine_are_not_passed_on(run: Run, random_demo: DemoModel, engine: Path) -> None:
    short = (random_demo.path, *ONE, "--max-trials", "0", "--budget", "0", "--json", "--llama", engine)
    done = run(
        "verify", *short, env={"LLAMA_ARG_MODEL": "/nowhere.gguf", "LLAMA_ARG_ALIAS": "x", "LLAMA_ARG_NO_UI": "z"}
    )
    assert result(done)["answer"]["predicted_n"] > 0
    assert done.stderr.count("LLAMA_ARG_ALIAS LLAMA_ARG_MODEL LLAMA_ARG_NO_UI") == 1


def test_the_command_names_the_port_and_the_verdict_is_said(
    run: Run, random_demo: DemoModel, engine: Path, tmp_path: Path
) -> None:
    short = (random_demo.path, *ONE, "--max-trials", "0", "--budget", "0", "--llama", engine)
    port = str(ports.free_port())
    text = run("verify", *short, "--", "--port", port).stdout
    assert f"--port {port}" in text and "--port 8080" not in text
    argv = json.loads(run("verify", *short, "--json", "--", "--port", port).stdout)["plan"]["argv"]
    assert argv[argv.index("--port") + 1] == port
    out = tmp_path / "found.json"
    done = run("verify", *short, "--json", "-o", out)
    found = json.loads(out.read_text())
    word = "inconclusive" if found["verdict"] == "slower" and not found["steady"] else found["verdict"]
    assert f"{word}: {found['reason']}" in done.stderr


def test_long_prompts_are_prose_from_different_places() -> None:
    prose = tuple(range(10))
    assert looking.filled(prose, 25) == (*prose, *prose, 0, 1, 2, 3, 4)
    assert looking.filled(prose, 4, start=13) == (3, 4, 5, 6)
