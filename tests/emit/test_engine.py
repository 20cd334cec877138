"""The printed flags against the real programs: they must get past the argument parser."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from emit.flag_spell import spell
from planner.facts.machine import Engine
from planner.plans.settings import FlashAttn, LoadMode, SplitMode, Tool
from tests.builders import make_machine, make_model, make_settings

MODEL = make_model(path="/nonexistent/model.gguf")
CPU = {"devices": (), "n_gpu_layers": 0}
ALL = dict(
    CPU, n_cpu_moe=3, override_tensor=((r"blk\.1\.ffn_(up|down)_exps", "CPU"), ("nothing", "CPU")), n_ubatch=4096,
    flash_attn=FlashAttn.ON, n_parallel=2, kv_unified=True, type_k="q8_0", type_v="q4_0", threads=2, threads_batch=2,
    op_offload=False, kv_offload=False, swa_full=True, no_host=True, repack=False, cache_ram_mib=-1, ctx_checkpoints=4,
    moe_cache_mib=64, spec_type="draft-mtp", split_mode=SplitMode.NONE,
)  # fmt: skip


def answer(engine: Path, tool: Tool, tokens: tuple[str, ...]) -> str:
    program = engine / tool.value
    if not program.exists():
        pytest.skip(f"{tool.value} is not in {engine}")
    env = os.environ | {"LD_LIBRARY_PATH": str(engine)}
    done = subprocess.run([program, *tokens], capture_output=True, text=True, timeout=60, env=env, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "changes",
    [CPU, ALL, *(dict(CPU, load_mode=mode) for mode in LoadMode), *(dict(CPU, flash_attn=fa) for fa in FlashAttn)],
    ids=str,
)
def test_llama_server_takes_every_flag(engine: Path, changes: dict[str, Any]) -> None:
    """``--version`` as the last word ends the program when everything before it was read."""
    machine = make_machine(engine=Engine("llama.cpp", _build(engine)))
    settings = make_settings(**changes)
    text = answer(engine, Tool.SERVER, (*spell(settings, MODEL, machine), "--version"))
    assert "version:" in text and "error" not in text, text


def test_llama_server_refuses_what_it_does_not_know(engine: Path) -> None:
    assert "invalid argument" in answer(engine, Tool.SERVER, ("--frobnicate", "--version"))


def test_llama_fit_params_takes_every_flag(engine: Path) -> None:
    machine = make_machine(engine=Engine("llama.cpp", _build(engine)))
    changes = {name: value for name, value in ALL.items() if name != "spec_type"}
    tokens = spell(make_settings(**changes), MODEL, machine, tool=Tool.FIT_PARAMS)
    text = answer(engine, Tool.FIT_PARAMS, (*tokens, "--version"))
    assert "version:" in text and "error" not in text, text


def test_llama_bench_takes_every_flag(engine: Path) -> None:
    machine = make_machine(engine=Engine("llama.cpp", _build(engine)))
    changes = {name: value for name, value in ALL.items() if name not in ("spec_type", "swa_full", "moe_cache_mib")}
    tokens = spell(make_settings(**changes), MODEL, machine, tool=Tool.BENCH)
    text = answer(engine, Tool.BENCH, tokens)
    assert "invalid parameter" not in text and "failed to load model" in text, text


def _build(engine: Path) -> int:
    import re

    match = re.search(r"build (\d+)|version: (\d+)", answer(engine, Tool.SERVER, ("--version",)))
    assert match
    return int(match[1] or match[2])
