"""Each finding by one command line that earns it and, in the same machine, one that does not."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from typing import Any

import pytest

from emit import lint_context, lint_engine, lint_memory, lint_placement
from emit.dialect import Dialect
from emit.flags import parse_argv
from emit.lint import CHECKS, lint, stops
from planner.facts.machine import Backend, Cpu, DriverModel, Engine, Machine, Os
from planner.facts.model import AttentionKind, Model
from planner.facts.reading import Source
from planner.facts.workload import Workload
from planner.plans.memory import DeviceMemory, HostMemory, Memory, Term
from planner.plans.plan import Candidate, Lint, Plan, Refusal, Shortfall, Verdict
from planner.plans.settings import Tool
from planner.units import GIB, MIB
from tests.builders import make_gpu, make_layer, make_machine, make_model
from tests.emit.plans import make_memory, make_speed

MODEL = make_model()
CPU = Cpu(physical_cores=8, logical_cores=16)
BUILD = Engine("llama.cpp", 11549, ("cuda",), ("f16:f16", "q8_0:q8_0"))
ONE = make_machine(make_gpu(), cpu=CPU, engine=BUILD)
BARE = replace(ONE, engine=None)
TWO = make_machine(make_gpu(), make_gpu("CUDA1"), cpu=CPU, engine=BUILD)
NONE = make_machine(cpu=CPU, engine=replace(BUILD, backends=("cpu",)))
DENSE = replace(MODEL, tensors=tuple(t for t in MODEL.tensors if "exps" not in t.name))
SWA = make_model(layers=(make_layer(0, window=128), make_layer(1)))
ODD = make_model(layers=(make_layer(0, head_k=72),))
MLA = make_model(layers=(make_layer(0, kind=AttentionKind.MLA), make_layer(1, kind=AttentionKind.MLA)))
SHORT = "-fit off -c 4096 -np 1"
GOOD = "-fit off -c 4096 -np 1 -ngl 5 -ncmoe 2 -fa on -cram 0"


def findings(
    line: str,
    *,
    model: Model = MODEL,
    machine: Machine = ONE,
    tool: Tool = Tool.SERVER,
    build: int | None = None,
    memory: Memory | None = None,
    short: bool = False,
) -> tuple[Lint, ...]:
    parsed = parse_argv(tuple(line.split()), model, machine, tool, build=build)
    shortfalls = (Shortfall("CUDA0", 2, 1),) if short else ()
    candidate = Candidate(
        parsed.settings, memory or make_memory(parsed.settings, machine), make_speed(), Verdict.FITS, shortfalls
    )
    return lint(parsed, Plan(machine, model, Workload(target_build=build), candidate, lint=()))


def test_a_good_line_has_no_findings() -> None:
    assert findings(GOOD) == ()


CASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("unknown-flag", f"{GOOD} --n-cpu-moes 3", "--n-cpu-moe", {}),
    ("unknown-flag", f"{GOOD} --frobnicate", "", {}),
    ("removed-flag", f"{GOOD} --no-mmap", "--load-mode none", {}),
    ("removed-flag", f"{GOOD} --draft-max 4", "--spec-draft-n-max 4", {}),
    ("unsupported-flag", f"{GOOD} --moe-cache-mib 64", "", {"build": 11434}),
    ("unsupported-flag", f"{GOOD} --load-mode none", "--no-mmap", {"build": 10000}),
    ("flash-attn-needs-value", f"{SHORT} -ngl 5 -fa", "-fa on", {}),
    ("gpu-flags-without-gpu", "-c 4096 -np 1 -ngl 99", "-ngl 0", {"machine": NONE}),
    ("gpu-flags-without-backend", GOOD, "-ngl 0", {"machine": replace(ONE, engine=replace(BUILD, backends=("cpu",)))}),
    ("not-counted", f"{GOOD} --mmproj x.gguf", "--no-mmproj-offload", {}),
    ("not-counted", f"{GOOD} -md draft.gguf", "", {}),
    ("fit-with-placement", GOOD.replace("-fit off", ""), "-fit off", {}),
    ("fit-with-placement", "-c 4096 -np 1 -ngl 5", "-fit off", {}),
    ("fit-with-placement", "-c 4096 -np 1 -ts 1,1", "-fit off", {"machine": TWO}),
    ("fit-decides", "-c 4096 -np 1", "-fit off", {"short": True}),
    ("ncmoe-beyond-blocks", GOOD.replace("-ncmoe 2", "-ncmoe 64"), "--n-cpu-moe 4", {}),
    ("ncmoe-on-dense-model", GOOD, "--n-cpu-ffn 2", {"model": DENSE}),
    ("ncmoe-without-tensor-split", GOOD, "-ts 3,2", {"machine": TWO}),
    ("row-split-moe", f"{GOOD} -sm row", "-sm layer", {"machine": TWO}),
    ("override-shadowed", f"{SHORT} -ot exps=CPU,blk.0.*exps=CUDA0", "-ot blk.0.*exps=CUDA0,exps=CPU", {}),
    ("override-matches-nothing", f"{SHORT} -ot nothing=CPU", "", {}),
    ("no-op-offload", f"{GOOD} --no-op-offload", "--op-offload", {}),
    ("ubatch-below-offload", f"{GOOD} -ub 16", "-ub 512", {}),
    ("threads-over-cores", f"{GOOD} -t 16", "-t 8", {}),
    ("threads-over-cores", f"{GOOD} -tb 9", "-tb 8", {}),
    ("moe-cache-thrashes", f"{GOOD} --moe-cache-mib 1", "--moe-cache-mib 2", {}),
    ("ubatch-over-batch", f"{GOOD} -ub 4096", "-b 4096", {}),
    ("quantised-v-without-fa", f"{GOOD} -fa off -ctk q8_0 -ctv q8_0", "-fa on", {}),
    ("kv-pair-not-compiled", f"{GOOD} -ctk q8_0 -ctv q4_0", "-ctk q8_0 -ctv q8_0", {}),
    ("kv-pair-converted", f"{GOOD} -ctv q5_1", "-ctk f16 -ctv f16", {"machine": BARE}),
    ("kv-pair-not-compiled", f"{GOOD} -ctv q5_1", "-ctk f16 -ctv f16", {"machine": BARE, "build": 11000}),
    ("kv-pair-refused", f"{GOOD} -ctk f16 -ctv bf16", "-ctk f16 -ctv f16", {"model": MLA}),
    ("kv-lossy", f"{GOOD} -ctk q8_0 -ctv q8_0", "-ctk f16 -ctv f16", {}),
    ("kv-type-does-not-divide-head", f"{GOOD} -ctk q8_0", "-ctk f16", {"model": ODD}),
    ("slots-divide-context", GOOD.replace("-np 1", "-np 4"), "-kvu", {}),
    ("auto-slots", GOOD.replace("-np 1", ""), "-np 1", {}),
    ("auto-slots", GOOD.replace("-np 1", "-np -1"), "-np 1", {"model": SWA}),
    ("default-context", GOOD.replace("-c 4096", ""), "-c 16384", {}),
    ("default-context", GOOD.replace("-c 4096", "-c 0"), "-c 16384", {}),
    ("context-over-training", GOOD.replace("-c 4096", "-c 65536"), "-c 32768", {}),
    ("context-not-padded", GOOD.replace("-c 4096", "-c 4000"), "-c 4096", {}),
    ("prompt-cache-unlimited", GOOD.replace("-cram 0", "-cram -1"), "-cram 8192", {}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "line", "fix", "more"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_finding(code: str, line: str, fix: str, more: dict[str, Any]) -> None:
    found = findings(line, **more)
    mine = [item for item in found if item.code == code]
    assert [item.fix for item in mine] == [fix], found
    assert mine[0].flag.startswith("-") and mine[0].message


REPLACES = {
    "unknown-flag",
    "removed-flag",
    "unsupported-flag",
    "flash-attn-needs-value",
    "not-counted",
    "ncmoe-on-dense-model",
    "override-shadowed",
    "gpu-flags-without-backend",
}
"""Fixes that are to be written instead of the flag, not after it."""


def test_appending_the_fix_ends_the_finding() -> None:
    for code, line, fix, more in CASES:
        if fix and code not in REPLACES:
            assert code not in {item.code for item in findings(f"{line} {fix}", **more)}, (code, line, fix)


def memory(
    free: int, *, available: int | None = 60 * GIB, prompt_cache: int = 0, model: int = GIB, held: int = 0
) -> Memory:
    used = 16 * GIB - free
    device = DeviceMemory("CUDA0", 16 * GIB, 0, model=(Term("weights", used, Source.DERIVED),))
    overhead = (
        Term("prompt cache (-cram)", prompt_cache, Source.DERIVED),
        Term("context checkpoints", held, Source.DERIVED),
    )
    host = HostMemory(model=(Term("weights", model, Source.DERIVED),), overhead=overhead, available_bytes=available)
    return Memory((device,), host)


def test_headroom() -> None:
    """What to write instead is tested where there is a plan that fits: test_lint_fix.py."""
    assert [(item.code, item.fix) for item in findings(GOOD, memory=memory(GIB - 1))] == [("no-headroom", None)]
    assert [item.code for item in findings(GOOD, memory=memory(-1))] == ["out-of-memory"]
    assert findings(GOOD, memory=memory(GIB)) == ()


@pytest.mark.parametrize(
    ("changes", "system", "says"),
    [
        ({}, Os.LINUX, "the load fails"),
        ({"driver_model": DriverModel.WDDM}, Os.WINDOWS, "shared memory, and speed collapses"),
        ({}, Os.WINDOWS, "shared memory, and speed collapses"),
        ({"driver_model": DriverModel.TCC}, Os.WINDOWS, "the load fails"),
        ({"backend": Backend.RPC}, Os.WINDOWS, "the load fails"),
        ({"driver_model": DriverModel.METAL, "unified": True}, Os.MACOS, "the system swaps"),
    ],
)
def test_what_too_much_does_depends_on_the_driver(changes: dict[str, Any], system: Os, says: str) -> None:
    computer = replace(ONE, os=system, gpus=(replace(ONE.gpus[0], **changes),))
    line = GOOD + (" --rpc h:1 -dev CUDA0" if changes.get("backend") else "")
    (found,) = (item for item in findings(line, machine=computer, memory=memory(-1)) if item.code == "out-of-memory")
    assert found.message.endswith(says) or says in found.message.partition(": ")[2]


def test_prompt_cache_that_does_not_fit() -> None:
    line = GOOD.replace("-cram 0", "")
    tight = memory(2 * GIB, available=6 * GIB, prompt_cache=8 * GIB)
    assert [(item.code, item.fix) for item in findings(line, memory=tight)] == [
        ("prompt-cache-too-large", "-cram 5120")
    ]
    assert findings(line, memory=memory(2 * GIB, available=12 * GIB, prompt_cache=8 * GIB)) == ()
    unknown = memory(2 * GIB, available=None, prompt_cache=8 * GIB)
    assert findings(line, memory=unknown) == ()
    assert findings("-m x", tool=Tool.BENCH, memory=tight) == ()


def test_weights_that_cannot_leave_ram() -> None:
    big = memory(2 * GIB, model=70 * GIB)
    assert [item.fix for item in findings(f"{GOOD} -lm none", memory=big)] == ["--load-mode mmap"]
    assert "unevictable-over-ram" not in {item.code for item in findings(GOOD, memory=big)}


def test_checkpoints() -> None:
    line = GOOD + " -ctxcp 32"
    found = findings(line, memory=memory(2 * GIB, held=19 * GIB))
    assert [(item.code, item.fix) for item in found] == [("checkpoints-hold-state", "--ctx-checkpoints 4")]
    assert findings(line, memory=memory(2 * GIB, held=100 * MIB)) == ()


def test_advice_is_that_of_the_nearest_plan() -> None:
    line = GOOD.replace("-cram 0", "-cram 8192") + " -ctxcp 32 -t 20"
    parsed = parse_argv(tuple(line.split()), MODEL, ONE, Tool.SERVER)
    machine = replace(ONE, cpu=Cpu(physical_cores=12, performance_cores=8, logical_cores=16))
    found = memory(2 * GIB, model=70 * GIB, held=19 * GIB)
    candidate = Candidate(parsed.settings, found, make_speed(), Verdict.FITS, (Shortfall("host", 2, 1),))
    near = replace(candidate, settings=replace(parsed.settings, ctx_checkpoints=8, cache_ram_mib=1024))
    refused = Plan(machine, MODEL, Workload(), candidate, refusal=Refusal((), near, ""), lint=())
    fixes = {item.code: item.fix for item in lint(parsed, refused)}
    assert fixes["threads-over-cores"] == "-t 8"
    assert (fixes["checkpoints-hold-state"], fixes["prompt-cache-too-large"]) == ("--ctx-checkpoints 8", "-cram 1024")
    kept = replace(near, settings=parsed.settings)
    codes = {item.code for item in lint(parsed, replace(refused, refusal=Refusal((), kept, "")))}
    assert not codes & {"checkpoints-hold-state", "prompt-cache-too-large"}


@pytest.mark.parametrize(
    ("build", "flag", "says"),
    [
        (6200, "--swa-checkpoints", "b6325"),
        (6400, "--swa-checkpoints", None),
        (6400, "--ctx-checkpoints", "b6730"),
        (6730, "-ctxcp", None),
        (11549, "--swa-checkpoints", None),
    ],
)
def test_checkpoints_of_a_build(build: int, flag: str, says: str | None) -> None:
    found = [item for item in findings(f"{GOOD} {flag} 3", build=build) if item.code == "unsupported-flag"]
    messages = [item.message for item in found if item.flag == flag]
    assert [says in message for message in messages] == ([True] if says else [])
    assert build != 6400 or all(item.fix == "--swa-checkpoints 3" for item in found if item.flag == flag)


def test_every_code_is_kebab_case_and_tested_here() -> None:
    modules = (lint_context, lint_engine, lint_memory, lint_placement)
    source = "".join(inspect.getsource(module) for module in modules)
    codes = set(re.findall(r'(?:Lint\(|code = |code, message = )\s*"([^"]+)"', source))
    tested = {case[0] for case in CASES} | {
        "no-headroom",
        "out-of-memory",
        "prompt-cache-too-large",
        "unevictable-over-ram",
        "checkpoints-hold-state",
    }
    assert codes == tested
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code) for code in codes)
    assert len(CHECKS) == sum(len(module.CHECKS) for module in modules)


def test_what_stops_llama_cpp_before_it_loads() -> None:
    """Only a whole ``--help`` makes an unknown flag certain."""
    unknown = Lint("unknown-flag", "--foo", "no --foo", "")
    fatal = Lint("quantised-v-without-fa", "-ctv", "needs flash attention", "-fa on")
    harmless = Lint("kv-lossy", "-ctk", "lossy", "")
    usual = parse_argv(tuple(SHORT.split()), MODEL, ONE, Tool.SERVER)
    whole = replace(usual, dialect=Dialect(11549, frozenset({"-m", "--model", "-c"})))
    guessed = replace(usual, dialect=Dialect(11549, assumed=True))
    assert stops((unknown, fatal, harmless), whole) == ("no --foo", "needs flash attention")
    assert stops((unknown, fatal, harmless), guessed) == ("needs flash attention",)
