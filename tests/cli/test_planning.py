"""``moeplan --fit``, ``--auto``, ``plan`` and ``check``: streams, exit codes, formats, bad input."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.demo import DemoModel

Run = Callable[..., subprocess.CompletedProcess[str]]
Named = Callable[[str], Path]
CONTROL = {chr(code) for code in range(32)} - {"\n"} | {"\x7f"}


@pytest.fixture
def desktop(machine_file: Named) -> Path:
    return machine_file("desktop-16gb-wddm")


@pytest.fixture
def small(machine_file: Named, tmp_path: Path) -> Path:
    """A machine on which not even the random demo fits: 1 MiB of RAM."""
    data = json.loads(machine_file("laptop-cpu").read_text())
    data["ram"] |= {"total_bytes": 1 << 20, "available_bytes": 1 << 20}
    path = tmp_path / "small.json"
    path.write_text(json.dumps(data))
    return path


def test_text_goes_to_stdout_alone(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    done = run("--fit", random_demo.path, "--machine", desktop)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Fits: ")
    for part in ("llama-server \\\n", "--n-cpu-moe 0", "-fit off", "Why\n", "Memory\n"):
        assert part in done.stdout
    assert not CONTROL & set(done.stdout)


def test_auto_measures_nothing_for_a_recorded_machine(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    done = run("--auto", random_demo.path, "--machine", desktop)
    assert (done.returncode, done.stderr) == (0, "")
    assert "[rates-assumed]" in done.stdout
    assert done.stdout == run("--fit", random_demo.path, "--machine", desktop).stdout


@pytest.mark.parametrize("option", ["--refresh", "--probe-mem"])
def test_measuring_where_nothing_is_measured(run: Run, random_demo: DemoModel, desktop: Path, option: str) -> None:
    recorded = run("--auto", random_demo.path, "--machine", desktop, option)
    assert (recorded.returncode, recorded.stdout) == (2, "") and "--machine" in recorded.stderr
    fit = run("--fit", random_demo.path, option)
    assert (fit.returncode, fit.stdout) == (2, "") and "--auto does" in fit.stderr


def test_the_long_form_is_the_same(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    short = run("--fit", random_demo.path, "--machine", desktop, "--ctx", "4608")
    middle = run("--ctx", "4608", "--machine", desktop, "--fit", random_demo.path)
    long = run("plan", random_demo.path, "--fit", "--machine", desktop, "--ctx", "4608")
    assert short.stdout == middle.stdout == long.stdout
    assert "-c 4608" in long.stdout


def test_the_width_of_the_terminal_leaves_the_command_alone(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    def command(columns: str) -> str:
        done = run("--fit", random_demo.path, "--machine", desktop, env={"COLUMNS": columns})
        return done.stdout.partition("\n\nllama-server")[2].partition("\n\n")[0]

    assert command("30") == command("200") != ""


def test_a_pipe_is_as_wide_as_columns_says(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    def widest(**env: str) -> int:
        text = run("explain", "headroom", env=env).stdout
        return max(map(len, text.splitlines()))

    assert 40 < widest(COLUMNS="60") <= 60 < widest() <= 100 < widest(COLUMNS="140") <= 140


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_without_colour_a_terminal_gets_no_escapes(environment: dict[str, str]) -> None:
    import pty

    def shown(*more: str) -> bytes:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "planner", "explain", "headroom", *more]
        child = subprocess.Popen(command, env=environment | {"TERM": "xterm"}, stdout=theirs, stderr=theirs)
        os.close(theirs)
        found = b""
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 4096):
                found += piece
        os.close(ours)
        assert child.wait(30) == 0
        return found

    assert b"\x1b[" in shown() and b"\x1b" not in shown("--no-color")


def test_this_machine_is_planned_for(run: Run, random_demo: DemoModel) -> None:
    done = run("--fit", random_demo.path, "--json")
    plan = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert plan["verdict"] == "fits"
    assert plan["model"]["path"] == random_demo.path


def test_a_refusal_exits_1_with_reasons(run: Run, random_demo: DemoModel, small: Path) -> None:
    done = run("--fit", random_demo.path, "--machine", small, "--json")
    plan = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")
    assert plan["verdict"] == "refused"
    [short] = plan["refusal"]["shortfalls"]
    assert short["device"] == "host" and short["needed_bytes"] > short["available_bytes"]
    text = run("--fit", random_demo.path, "--machine", small)
    assert text.returncode == 1 and "Does not fit" in text.stdout


@pytest.mark.parametrize(
    ("form", "begins"),
    [
        ("json", "{"),
        ("sh", "#!/bin/sh\n"),
        ("ps1", "# Fits"),
        ("env", "# Fits"),
        ("text", "Fits"),
        ("preset", "# Fits"),
        ("llama-swap", "# Fits"),
        ("compose", "# Fits"),
        ("html", "<!DOCTYPE html>"),
    ],
)
def test_formats(run: Run, random_demo: DemoModel, desktop: Path, form: str, begins: str, tmp_path: Path) -> None:
    shown = run("--fit", random_demo.path, "--machine", desktop, "--format", form)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(begins)
    written = run("--fit", random_demo.path, "--machine", desktop, "--format", form, "-o", "out")
    assert (written.returncode, written.stdout, written.stderr) == (0, "", f"{form}: written to out\n")
    assert (tmp_path / "out").read_text() == shown.stdout


def test_forms_that_run_elsewhere_hold_whole_paths(run: Run, random_demo: DemoModel, tmp_path: Path) -> None:
    """The name that was given stays the service's; a container gets the file behind a link."""
    (tmp_path / "linked.gguf").symlink_to(random_demo.path)
    (tmp_path / "llama-server").touch(0o755)
    forms = [word for form in ("preset", "llama-swap", "compose", "systemd") for word in ("--format", form, "-o", form)]
    machine = json.loads(run("probe", "--json", "--budget", "0").stdout)
    machine |= {"os": "linux", "gpus": [], "engine": {"kind": "llama.cpp", "build": 11549, "server": "./llama-server"}}
    (tmp_path / "m.json").write_text(json.dumps(machine))
    done = run("--fit", "linked.gguf", "--machine", "m.json", *forms, "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    here, there = {name: (tmp_path / name).read_text() for name in forms[1::4]}, Path(random_demo.path).resolve()
    assert f"[linked]\nmodel = {tmp_path}/linked.gguf\n" in here["preset"]
    assert f"-m {tmp_path}/linked.gguf\n" in here["llama-swap"] and '"linked":' in here["llama-swap"]
    assert f"-m {tmp_path}/linked.gguf " in here["systemd"]
    assert f'source: "{there.parent}"' in here["compose"] and f'"/models/{there.name}"' in here["compose"]
    assert '  "linked":\n' in here["compose"]


def test_all_forms_or_none(run: Run, random_demo: DemoModel, desktop: Path, tmp_path: Path) -> None:
    forms = ("--format", "sh", "-o", "start.sh", "--format", "systemd", "-o", "x.service")
    done = run("--fit", random_demo.path, "--machine", desktop, *forms)
    assert (done.returncode, done.stdout) == (2, "") and "expected a Linux machine, found windows" in done.stderr
    assert not (tmp_path / "start.sh").exists() and not (tmp_path / "x.service").exists()


def test_another_engine(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    plan = ("--fit", random_demo.path, "--machine", desktop, "--target")
    assert "bmoe-cli \\\n" in run(*plan, "bigmoe").stdout
    assert "--load-mode" not in run(*plan, "ik_llama.cpp").stdout
    cannot = run(*plan, "working-set")
    assert (cannot.returncode, cannot.stdout) == (1, "") and "no server flag" in cannot.stderr
    for words, says in (
        ((*plan, "ollama"), "expected llama.cpp, ik_llama.cpp, bigmoe, working-set or a build"),
        (("check", random_demo.path, "--machine", desktop, "--target", "bigmoe", "--", "-c", "512"), "flags of bigmoe"),
        (("run", random_demo.path, "--target", "ik_llama.cpp"), "another engine or build"),
    ):
        done = run(*words)
        assert (done.returncode, done.stdout) == (2, "") and says in done.stderr, words


def test_a_build_before_overrides(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    plan = ("--fit", random_demo.path, "--machine", desktop, "--target", "b5063", "--pin")
    done = run(*plan, "n-cpu-moe=2")
    assert done.returncode == 1 and "b6089" in done.stderr and "--pin n-cpu-moe=0" in done.stderr
    done = run(*plan, "n-cpu-moe=0")
    assert done.returncode == 0 and "-ot" not in done.stdout.partition("Why")[0]


def test_several_formats(run: Run, random_demo: DemoModel, desktop: Path, tmp_path: Path) -> None:
    forms = ("--format", "text", "-o", "-", "--format", "sh", "-o", "start.sh", "--json", "-o", "plan.json", "-q")
    done = run("--fit", random_demo.path, "--machine", desktop, *forms)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Fits")
    assert (tmp_path / "start.sh").read_text().startswith("#!/bin/sh")
    assert json.loads((tmp_path / "plan.json").read_text())["schema"] == "moeplan.plan/1"


def test_why_adds_the_evidence(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    brief = run("--fit", random_demo.path, "--machine", desktop).stdout
    full = run("--fit", random_demo.path, "--machine", desktop, "--why").stdout
    assert "Every decision" in full and "Every decision" not in brief


@pytest.mark.parametrize("pin", ["n_ubatch=256", "ub=256", "-ub=256", "--ubatch-size=256", "ubatch-size=256"])
def test_a_pin_takes_any_spelling(run: Run, random_demo: DemoModel, desktop: Path, pin: str) -> None:
    done = run("--fit", random_demo.path, "--machine", desktop, f"--pin={pin}", "--json")
    assert json.loads(done.stdout)["settings"]["n_ubatch"] == 256


def test_limits_reach_the_plan(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    limits = ("--ctx", "8192", "--parallel", "2", "--kv", "q8_0", "--vram", "CUDA0=6GiB", "--ram", "20GB")
    plan = json.loads(run("--fit", random_demo.path, "--machine", desktop, *limits, "--json").stdout)
    settings, memory = plan["settings"], plan["memory"]
    assert (settings["n_ctx"], settings["n_parallel"], settings["type_k"], settings["type_v"]) == (
        8192,
        2,
        "q8_0",
        "q8_0",
    )
    [device] = memory["devices"]
    assert device["total_bytes"] - device["used_before_bytes"] == 6 << 30
    assert memory["host"]["available_bytes"] == 20 * 10**9


def test_the_target_build_decides_the_spelling(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    old = run("--fit", random_demo.path, "--machine", desktop, "--target", "b9093").stdout
    new = run("--fit", random_demo.path, "--machine", desktop, "--target", "b11549").stdout
    assert "--load-mode" in new and "--load-mode" not in old


def test_check(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    done = run("check", random_demo.path, "--machine", desktop, "--json", "--", "-c", "8192", "-ngl", "99", "--zzz")
    plan = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")
    assert plan["verdict"] == "refused"
    assert plan["source"] == "user flags"
    assert plan["settings"]["n_ctx"] == 8192
    assert "--zzz" in {finding["flag"] for finding in plan["lint"]}


def test_check_reads_flags_for_the_tool(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    done = run("check", random_demo.path, "--machine", desktop, "--tool", "llama-bench", "--json", "--", "-p", "64")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["settings"]["n_parallel"] == 1


def test_check_of_flags_that_cannot_be_read(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    done = run("check", random_demo.path, "--machine", desktop, "--", "-c", "many")
    assert (done.returncode, done.stdout) == (2, "")
    assert "-c" in done.stderr and "many" in done.stderr


def test_check_of_flags_that_do_not_fit(run: Run, random_demo: DemoModel, small: Path) -> None:
    done = run("check", random_demo.path, "--machine", small, "--", "-c", "4096")
    assert done.returncode == 1
    assert "Does not fit" in done.stdout


@pytest.mark.parametrize("command", [("--fit",), ("--fit", "--json"), ("--fit", "--format", "sh"), ("inspect",)])
def test_escape_codes_in_a_file_stay_there(
    run: Run, random_demo: DemoModel, tmp_path: Path, command: tuple[str, ...]
) -> None:
    hostile = b"\x1b[2J\x07\r\x9b\xe2\x80\xae"  # clear screen, bell, return, C1, right-to-left override
    data = Path(random_demo.path).read_bytes()
    name = b"moeplan demo: random weights"
    assert data.count(name) == 1
    (tmp_path / "evil.gguf").write_bytes(data.replace(name, hostile + name[len(hostile) :]))
    done = run(*command, "evil.gguf")
    assert done.returncode in (0, 3)
    shown = done.stdout + done.stderr
    assert not CONTROL & set(shown) and "\u202e" not in shown and "\x9b" not in shown


def cut_in_half(whole: Path, path: Path) -> None:
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])


def test_a_cut_file(run: Run, random_demo: DemoModel, tmp_path: Path) -> None:
    cut_in_half(Path(random_demo.path), tmp_path / "cut.gguf")
    for command in (("--fit",), ("inspect",), ("check",)):
        assert_unreadable(run(*command, "cut.gguf"), "cut.gguf")


@pytest.mark.parametrize("command", ["--fit", "--auto", "inspect", "check"])
@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "not-a-gguf", "fifo"])
def test_files_that_are_no_model(run: Run, tmp_path: Path, command: str, kind: str) -> None:
    path = tmp_path / "model.gguf"
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind == "not-a-gguf":
        path.write_bytes(b"PK\x03\x04 \x1b[31m" * 100)
    elif kind == "fifo":
        if not hasattr(os, "mkfifo"):
            pytest.skip("this system has no FIFOs in its file system")
        os.mkfifo(path)
    assert_unreadable(run(command, "model.gguf"), "model.gguf")


def assert_unreadable(done: subprocess.CompletedProcess[str], name: str) -> None:
    """Exit 3, nothing on stdout, one message that names the file, no traceback, no control character."""
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("moeplan: ") and name in done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1
    assert not CONTROL & set(done.stderr)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "nothing there"),
        ("", "JSON"),
        ("[]", "no JSON object"),
        ('{"schema":"moeplan.machine/9"}', "moeplan.machine/1"),
    ],
)
def test_machine_files_that_are_none(
    run: Run, random_demo: DemoModel, tmp_path: Path, content: str | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "m.json").write_text(content)
    done = run("--fit", random_demo.path, "--machine", "m.json")
    assert (done.returncode, done.stdout) == (3, "")
    assert "m.json" in done.stderr and says in done.stderr


def test_what_is_named_must_be_there(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    engine = run("--fit", random_demo.path, "--llama", "nowhere")
    assert (engine.returncode, engine.stdout) == (3, "")
    assert "nowhere" in engine.stderr
    both = run("--fit", random_demo.path, "--llama", "nowhere", "--machine", desktop)
    assert both.returncode == 2 and "nothing is measured with --machine" in both.stderr
    target = run("--fit", random_demo.path, "--machine", desktop, "-o", "no/such/folder")
    assert (target.returncode, target.stdout) == (3, "")
    assert "no/such/folder" in target.stderr
    pin = run("--fit", random_demo.path, "--machine", desktop, "--pin", "colour=red")
    assert (pin.returncode, pin.stdout) == (2, "") and "colour" in pin.stderr


def test_an_output_never_overwrites_an_input(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    before = Path(random_demo.path).read_bytes()
    done = run("--fit", random_demo.path, "--machine", desktop, "-o", random_demo.path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "input" in done.stderr
    assert Path(random_demo.path).read_bytes() == before


def test_budgets_of_devices_that_are_not_there(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    for size in ("CUDA7=4GiB", "CUDA0=100GiB", "4"):
        done = run("--fit", random_demo.path, "--machine", desktop, "--vram", size)
        assert (done.returncode, done.stdout) == (2, ""), size
        assert "--vram" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["--help"], ["explain", "headroom"]])
def test_a_full_disk_is_said_without_a_traceback(words: list[str], environment: dict[str, str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "planner", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_pins_read_negative_spellings(run: Run, random_demo: DemoModel, desktop: Path) -> None:
    done = run("--fit", random_demo.path, "--machine", desktop, "--pin", "--no-repack=true", "--json")
    assert done.returncode == 0, done.stderr
    assert "-nr" in json.loads(done.stdout)["argv"] or "--no-repack" in json.loads(done.stdout)["argv"]
