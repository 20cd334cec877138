"""Checks of flags against the llama.cpp build and its tools."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from emit.dialect import Dialect
from emit.flag_table import FA_VALUE_SINCE, FLAGS, READ_ONLY, Flag, spellings
from emit.flag_words import OTHER_ARITY, REMOVED, UNCOUNTED
from emit.lint_case import Case, Check
from planner.facts.machine import Backend
from planner.plans.plan import Lint
from planner.plans.settings import Tool

_GPU_SETTINGS = (
    "n_gpu_layers",
    "tensor_split",
    "devices",
    "split_mode",
    "main_gpu",
    "n_cpu_moe",
    "cpu_moe",
    "moe_cache_mib",
)
_GPU_BACKENDS = frozenset(backend.value for backend in Backend) - {Backend.RPC.value}


def unknown_flag(case: Case) -> Iterator[Lint]:
    """llama.cpp stops at an argument it does not know."""
    known = _known(case.parsed.tool)
    for name in case.parsed.unknown:
        if name in case.parsed.dialect.flags:
            continue
        near = difflib.get_close_matches(name, known, 1, 0.75)
        yield Lint(
            "unknown-flag", name, f"no {case.parsed.tool.value} that moeplan knows has {name}: it stops there",
            near[0] if near else "",
        )  # fmt: skip


def removed_flag(case: Case) -> Iterator[Lint]:
    """A flag that an earlier build had."""
    build = case.parsed.dialect.build
    for name, value in case.parsed.given:
        if name in REMOVED and (REMOVED[name][0] is None or build >= (REMOVED[name][0] or 0)):
            if REMOVED[name][0] is not None and name in case.parsed.dialect.flags:
                continue
            since = f"since b{REMOVED[name][0]} " if REMOVED[name][0] else ""
            fix = REMOVED[name][1] + (f" {value}" if value and REMOVED[name][0] is None else "")
            yield Lint("removed-flag", name, f"{since}llama.cpp refuses {name} (this is b{build})", fix)


def too_new_flag(case: Case) -> Iterator[Lint]:
    """A flag that this build does not have yet."""
    dialect, tool = case.parsed.dialect, case.parsed.tool
    for name, value in case.parsed.given:
        row = _row(name, tool)
        if row is None or name in REMOVED or name in (*dialect.names(row, tool), *_said_no(row, dialect, tool)):
            continue
        fix = "--no-mmap" if row.setting == "load_mode" and case.settings.load_mode.value == "none" else ""
        came = row.since
        if row.formerly and name != row.formerly[0]:
            came = row.formerly[1]
            fix = " ".join((*dialect.names(row, tool)[:1], value)) if dialect.has(row, tool) else fix
        since = f"; it came with b{came}" if came and dialect.build < came else ""
        yield Lint("unsupported-flag", name, f"b{dialect.build} does not have {name}{since}: it stops there", fix)


def _said_no(row: Flag, dialect: Dialect, tool: Tool) -> tuple[str, ...]:
    return row.negative if dialect.has(row, tool) else ()


def bare_flash_attention(case: Case) -> Iterator[Lint]:
    """``-fa`` without a value swallows the next word or stops."""
    found = case.parsed.find("flash_attn")
    if found and not found[1] and case.parsed.dialect.build >= FA_VALUE_SINCE:
        message = f"{found[0]} needs a value since b{FA_VALUE_SINCE}; the next word would be taken for it"
        yield Lint("flash-attn-needs-value", found[0], message, "-fa on")


def gpu_flags_without_gpu(case: Case) -> Iterator[Lint]:
    """Placement flags on a build or a machine without a GPU do nothing."""
    found = case.parsed.find(*_GPU_SETTINGS)
    if not found or found[1] in ("0", "none"):
        return
    engine = case.machine.engine
    backends = {name.lower() for name in engine.backends} if engine else set()
    if not case.machine.gpus:
        yield Lint("gpu-flags-without-gpu", found[0], "no GPU was found on this machine: it has no effect", "-ngl 0")
    elif engine and backends and not backends & _GPU_BACKENDS and not case.settings.rpc:
        message = f"this llama.cpp was built for {', '.join(sorted(backends))} only: it has no effect"
        yield Lint("gpu-flags-without-backend", found[0], message, "-ngl 0")


def uncounted(case: Case) -> Iterator[Lint]:
    """Something is loaded that the prediction does not hold."""
    for name, _ in case.parsed.given:
        if name in UNCOUNTED:
            fix = "--no-mmproj-offload" if name in ("-mm", "--mmproj", "-mmu", "--mmproj-url") else ""
            yield Lint("not-counted", name, f"{UNCOUNTED[name]} is not in the predicted memory; leave room for it", fix)


def _known(tool: Tool) -> list[str]:
    rows = [name for row in (*FLAGS, *READ_ONLY) for name in (*spellings(row, tool), *row.negative)]
    return [*rows, *OTHER_ARITY[tool]]


def _row(name: str, tool: Tool) -> Flag | None:
    return next((row for row in (*FLAGS, *READ_ONLY) if name in (*spellings(row, tool), *row.negative)), None)


CHECKS: tuple[Check, ...] = (
    unknown_flag,
    removed_flag,
    too_new_flag,
    bare_flash_attention,
    gpu_flags_without_gpu,
    uncounted,
)
