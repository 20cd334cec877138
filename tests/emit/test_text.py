"""What a terminal shows. The golden pages are read by people: change them with care."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from emit import argv, html_page, machine_view, memory_view, model_view, rule_page, shell, text
from planner.facts.machine import Cpu, Disk, LayerRate, ReadPoint
from planner.facts.outcome import ProbeReport
from planner.facts.reading import Reading, Source
from planner.plans.decision import Confidence, RuleDoc
from planner.plans.memory import PROMPT_CACHE, Term, joined, total
from planner.plans.oracle import Confirmation, Difference, Oracle
from planner.plans.plan import Caution, Exchange, Lint, Plan
from planner.units import GIB, MIB
from tests.builders import make_gpu, make_layer, make_machine, make_model
from tests.emit.plans import NASTY, make_decision, make_plan, measured_machine, refused_plan

GOLDEN = Path(__file__).parent / "golden"
DOC = RuleDoc(
    id="experts",
    title="Experts leave the GPU first",
    settings=("n_cpu_moe", "headroom"),
    what="What it does.",
    why="Why it does.",
    numbers=(("41 | 88 tok/s", "measured"),),
    abstains="No experts.",
    references=("common/common.h (b11434)",),
)


def shown(view: RenderableType, *, width: int = 80, color: bool = False) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="truecolor" if color else None,
        legacy_windows=False,
    )
    console.print(view, crop=False)
    assert isinstance(console.file, io.StringIO)
    return "".join(line.rstrip() + "\n" for line in console.file.getvalue().splitlines())


def check_plan() -> Plan:
    findings = (
        Lint("no-headroom", "-ncmoe", "CUDA0 keeps 200 MiB free, under 1,024 MiB", "--n-cpu-moe 3"),
        Lint("unknown-flag", "--frob", "it stops there", ""),
    )
    return make_plan(lint=findings, decisions=(), exchange=())


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("plan", text.plan_view(make_plan())),
        ("plan-why", text.plan_view(make_plan(), why=True)),
        ("refusal", text.plan_view(refused_plan())),
        ("check", text.check_view(check_plan())),
        ("check-refused", text.check_view(replace(refused_plan(), lint=(), cautions=(), exchange=()))),
        ("rule", rule_page.rule_view(DOC, make_plan().decisions)),
        ("model", model_view.model_view(make_model(notes=("A note.",)))),
    ],
)
def test_golden(name: str, view: RenderableType) -> None:
    assert shown(view) == (GOLDEN / f"{name}.txt").read_text()


def test_golden_markdown() -> None:
    assert rule_page.markdown(DOC) == (GOLDEN / "rule.md").read_text()


@pytest.mark.parametrize("width", [20, 80, 200])
@pytest.mark.parametrize("color", [False, True])
def test_the_command_is_never_wrapped(width: int, color: bool) -> None:
    plan = make_plan(make_model(path="/very/long" * 40 + "/model.gguf"))
    command = shell.command(argv.program(plan), argv.flags(plan))
    for view in (text.plan_view(plan), text.plan_view(replace(refused_plan(), model=plan.model))):
        assert f"  -m {plan.model.path} \\\n" in re.sub("\x1b\\[[0-9;]*m", "", shown(view, width=width, color=color))
    assert command in shown(text.plan_view(plan), width=width)


def test_every_flag_of_the_command_has_a_reason() -> None:
    page = shown(text.plan_view(make_plan()), width=200)
    why = page[page.index("Why") : page.index("Memory")].splitlines()
    for item in argv.flags(make_plan()):
        line = next(line for line in why if line.strip().startswith(f"{item.flag} "))
        assert len(line.split()) > len(item.tokens) + 1, line


def test_lossy_and_assumed_are_said() -> None:
    lossy = make_decision(setting="type_k", lossless=False, confidence=Confidence.ASSUMED)
    assert "(lossy) (assumed)" in shown(text.plan_view(make_plan(decisions=(lossy,))), width=200)


@pytest.mark.parametrize("nasty", [*NASTY, "[bold red]markup[/] [/] :smile: [link=http://x]y[/link]"])
@pytest.mark.parametrize("color", [False, True])
def test_names_from_files_cannot_steer_the_terminal(nasty: str, color: bool) -> None:
    model = make_model(
        path=nasty, name=nasty, arch=nasty, notes=(nasty,), fingerprint=nasty, layers=(make_layer(0, window=3),)
    )
    gpu = make_gpu(name=nasty)
    machine = make_machine(
        gpu,
        cpu=Cpu(nasty, isa=(nasty,)),
        disk=Disk(nasty, nasty),
        probes=(ProbeReport(nasty, "failed", nasty, 0.1),),
    )
    decision = make_decision(rule=nasty, headline=nasty, setting=nasty, value=nasty)
    plan = make_plan(
        model,
        machine,
        decisions=(decision,),
        cautions=(Caution("x", nasty),),
        exchange=(Exchange(nasty, nasty),),
        lint=(Lint("x", nasty, nasty, nasty),),
    )
    refusal = replace(refused_plan(), model=model)
    views = [text.plan_view(plan, why=True), text.check_view(plan, why=True), text.plan_view(refusal, why=True)]
    views += [model_view.model_view(model), machine_view.machine_view(machine)]
    for view in views:
        page = shown(view, width=300, color=color)
        plain = re.sub("\x1b\\[[0-9;]*m", "", page) if color else page
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", plain)
        assert "\x1b[31m\x07" not in page and "\x1b]8" not in page
        assert "markup" not in nasty or "[bold red]markup[/]" in plain


def test_a_page_for_five_devices_fits_eighty_columns() -> None:
    machine = make_machine(*(make_gpu(f"CUDA{i}") for i in range(5)))
    settings = replace(
        make_plan().chosen.settings, devices=tuple(f"CUDA{i}" for i in range(5)), tensor_split=(1.0,) * 5
    )
    page = shown(text.plan_view(make_plan(machine=machine, settings=settings)))
    assert max(map(len, page[page.index("Why") :].splitlines())) <= 80 and "CUDA4" in page


def test_probe_page() -> None:
    machine = replace(
        measured_machine(),
        cpu=Cpu("A CPU", 8, 8, 16, ("avx2",), 2, Reading(3.0, Source.MEASURED)),
        disk=Disk(
            "/models",
            "ext4",
            None,
            tuple(
                ReadPoint(1 << 20, depth, Reading(rate, Source.MEASURED, "O_DIRECT, 1024 KiB"))
                for depth, rate in ((1, 1e9), (8, 2e9))
            ),
            mapped_bps=Reading(3e8, Source.MEASURED, "cold mapping", 6e7, 0.1),
            remote=True,
        ),
        probes=(
            ProbeReport("cpu", "found", "", 0.0012),
            ProbeReport("rocm", "absent", "no /sys/class/kfd", 0.0),
            ProbeReport("nvml", "failed", "driver mismatch", 1.5),
        ),
    )
    page = shown(machine_view.machine_view(machine), width=160)
    for words in ("8 physical / 8 performance / 16 logical cores", "2 NUMA nodes", "60.0 GB/s (measured)", "b11549",
                  "1.0 MiB x1/8: 1.0 GB/s, 2.0 GB/s (measured, O_DIRECT)", "; remote;",
                  "mapped 0.3 GB/s (measured, cold mapping, ±20%)", "3 threads read RAM at its full rate",
                  "60.0 TFLOPS (reported)"):  # fmt: skip
        assert words in page
    assert re.search(r"nvml +failed +1,500 +driver mismatch", page) and re.search(r"rocm +absent +0 +no /sys", page)
    empty = shown(machine_view.machine_view(make_machine()), width=160)
    assert "GPU" in empty and "none found" in empty and "not known (estimated where needed)" in empty


def test_model_page_joins_equal_blocks() -> None:
    layers = tuple(make_layer(i, window=128 if i % 2 else 0) for i in range(8))
    page = shown(model_view.model_view(make_model(layers=layers)), width=120)
    assert "0-6 by 2" in page and "1-7 by 2" in page and "sliding windows, per cell" in page
    plain = shown(model_view.model_view(make_model(4)), width=120)
    assert re.search(r"^  0-3 +full", plain, re.M) and "sliding" not in plain
    dense = make_model(tied=True)
    dense = replace(dense, tensors=tuple(t for t in dense.tensors if "exps" not in t.name))
    assert "dense" in shown(model_view.model_view(dense)) and "tied" in shown(model_view.model_view(dense))


@pytest.mark.parametrize(
    ("oracle", "line"),
    [
        (Oracle(Confirmation.CONFIRMED, 11549), "confirmed by llama.cpp b11549 within 0 MiB"),
        (
            Oracle(Confirmation.CONFIRMED, 11549, True, (Difference("Host", "compute", 0, 4 * MIB),)),
            "confirmed by llama.cpp b11549 (an earlier answer) within 4 MiB",
        ),
        (
            Oracle(Confirmation.DISAGREES, None, False, (Difference("Host", "model", 9 * MIB, 2 * MIB),)),
            "llama.cpp counts otherwise, by up to 7 MiB [oracle-disagrees]",
        ),
        (Oracle(Confirmation.FAILED, 11549, reason="a\x1b[31mb"), "not confirmed: a\\x1b[31mb"),
    ],
)
def test_the_word_of_the_engine_stands_below_the_table(oracle: Oracle, line: str) -> None:
    plan, own = replace(make_plan(), oracle=oracle), replace(check_plan(), oracle=oracle)
    for view in (text.plan_view(plan), text.check_view(own)):
        lines = [row.strip() for row in shown(view).splitlines()]
        assert lines[lines.index(line) - 1].startswith("of it mapped")


def test_machine_page_shows_timed_layers() -> None:
    rates = (
        LayerRate(
            "f", "CUDA0", "moe", "Q4_K", Reading(0.0021, Source.MEASURED, spread=0.0001),
            Reading(0.00003, Source.MEASURED), 512, 0.004, experts="host", crossing_s=Reading(2e-5, Source.DERIVED),
        ),
        LayerRate("f", "CPU", "dense"),
    )  # fmt: skip
    page = shown(machine_view.machine_view(make_machine(layers=rates)), width=200)
    assert "layer, CUDA0  moe Q4_K, experts in RAM; decode 2.100 ± 0.100 ms (measured)" in page
    assert "prefill 4.00 ms per ubatch and 30.00 µs per token; crossing 0.020 ms (derived)" in page
    assert "layer, CPU" in page


def test_where_no_flag_helps_none_is_shown() -> None:
    nothing = make_plan(lint=(Lint("out-of-memory", "-ot", "CUDA0 is short", None),), decisions=(), exchange=())
    page = shown(text.check_view(nothing))
    assert "[out-of-memory]" in page and "leave it out" not in page and "None" not in page


def test_the_prompt_cache_and_repacked_weights_have_rows_of_their_own() -> None:
    memory = make_plan().chosen.memory
    cache = Term(PROMPT_CACHE, 8 * GIB, Source.DERIVED)
    plain = total(memory.host.overhead)
    host = replace(memory.host, overhead=(*memory.host.overhead, cache), repacked_bytes=3 * GIB)
    memory = replace(memory, host=host)
    rows = {line[:19].strip(): line[19:].split() for line in shown(memory_view.table(memory)).splitlines()}
    assert rows["prompt cache"] == ["8,192"] and rows["overhead"][-1] == f"{plain // MIB:,}"
    assert rows["of it repacked"] == ["3,072"]
    page = html_page.html_page(replace(make_plan(), chosen=replace(make_plan().chosen, memory=memory)))
    assert 'title="prompt cache 8,192 MiB"' in page and "of it repacked" in page
    bare = shown(memory_view.table(make_plan().chosen.memory))
    assert "prompt cache" not in bare and "repacked" not in bare


def test_the_table_shows_what_devices_take_of_ram() -> None:
    plan = make_plan()
    memory = plan.chosen.memory
    shared = joined(memory.devices, replace(memory.host, available_bytes=8 * GIB), frozenset({"CUDA0"}))
    rows = {line[:19].strip(): line[19:].split() for line in shown(memory_view.table(shared)).splitlines()}
    (device,), host = shared.devices, shared.host
    left = f"{(8 * GIB - device.predicted_bytes - host.predicted_bytes) // MIB:,}"
    assert rows["stays free"] == [left, left]
    assert rows["taken by devices"] == [f"{device.predicted_bytes // MIB:,}"]
    assert "taken by devices" not in shown(memory_view.table(memory))
