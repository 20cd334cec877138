"""Checks of what the flags leave free."""

from __future__ import annotations

from collections.abc import Iterator

from emit import lint_fix, wording
from emit.lint_case import Case, Check
from planner import units
from planner.facts.machine import Backend, DriverModel, Os
from planner.plans.memory import DeviceMemory
from planner.plans.plan import Lint
from planner.plans.settings import LoadMode, Tool

RESERVE_BYTES = units.GIB
"""llama.cpp's own ``--fit-target`` default, and where no run under WDDM collapsed."""


def headroom(case: Case) -> Iterator[Lint]:
    """Every device keeps 1 GiB (or what ``--headroom`` says) of its own limit at the predicted peak."""
    asked = case.plan.workload.headroom_bytes
    reserve = RESERVE_BYTES if asked is None else asked
    for device in case.memory.devices:
        left = device.room_bytes
        if left >= reserve:
            continue
        if left < 0:
            code, message = "out-of-memory", f"{_lacking(case, device)}: {_short(case, device.id)}"
        else:
            code = "no-headroom"
            message = (
                f"{device.id} keeps {units.mib(left)} free, under {units.mib(reserve)}: it may slow down or die later"
            )
        yield Lint(code, case.typed("n_cpu_moe", "-ngl"), message, lint_fix.nearest(case))


def _lacking(case: Case, device: DeviceMemory) -> str:
    """The shortage in the words of the verdict, where that names the device."""
    short = next((item for item in case.plan.chosen.shortfalls if item.device == device.id), None)
    said = wording.lack(short, case.memory) if short else f"lacks {units.mib(-device.room_bytes)}"
    return f"{device.id} {said}"


def _short(case: Case, device: str) -> str:
    """What the driver does with more than the device has: 17,070 MiB of buffers on 16,376 were allocated without an
    error under WDDM, and ran many times slower (RTX 4080 SUPER, zhaoyilun/moe-working-set-16gb)."""
    gpu = next(gpu for gpu in case.machine.gpus if gpu.id == device)
    windows = gpu.driver_model is None and case.machine.os is Os.WINDOWS and gpu.backend is not Backend.RPC
    if gpu.driver_model is DriverModel.WDDM or windows:
        return "Windows moves the rest into shared memory, and speed collapses"
    return "RAM is the same memory: the system swaps, or ends it" if gpu.unified else "the load fails"


def prompt_cache(case: Case) -> Iterator[Lint]:
    """llama-server keeps up to 8 GiB of old prompts in RAM unless told otherwise."""
    s, host = case.settings, case.memory.host
    if case.parsed.tool is not Tool.SERVER or not s.cache_ram_mib:
        return
    flag = case.typed("cache_ram_mib", "-cram")
    if s.cache_ram_mib < 0:
        yield Lint("prompt-cache-unlimited", flag, "the prompt cache in RAM grows without a limit", "-cram 8192")
        return
    left = host.headroom_bytes
    if left is not None and left < 0:
        room = max((left // units.MIB + s.cache_ram_mib) // 256 * 256, 0)
        room = case.nearest.cache_ram_mib if case.nearest else room
        if room >= s.cache_ram_mib:
            return
        message = (
            f"a prompt cache of {s.cache_ram_mib:,} MiB does not fit beside the rest: RAM is {units.mib(-left)} short"
        )
        yield Lint("prompt-cache-too-large", flag, message, f"-cram {room}")


def unevictable(case: Case) -> Iterator[Lint]:
    """Weights that are read into memory cannot be dropped; mapped ones can."""
    s, host = case.settings, case.memory.host
    if s.load_mode in (LoadMode.MMAP, LoadMode.DIO) or host.available_bytes is None:
        return
    if host.unevictable_bytes > host.available_bytes:
        message = (
            f"{units.size(host.unevictable_bytes)} must stay in RAM and {units.size(host.available_bytes)} are "
            "available: the system swaps or kills it"
        )
        yield Lint("unevictable-over-ram", case.typed("load_mode", "--load-mode"), message, "--load-mode mmap")


def checkpoints(case: Case) -> Iterator[Lint]:
    """Each checkpoint of a hybrid or sliding-window model holds the whole state (unslothai/unsloth#11073)."""
    s, host = case.settings, case.memory.host
    held = sum(term.n_bytes for term in host.overhead if "checkpoint" in term.name)
    fewer = case.nearest.ctx_checkpoints if case.nearest else 4
    if case.parsed.tool is Tool.SERVER and held > RESERVE_BYTES and s.ctx_checkpoints > fewer:
        message = f"{s.ctx_checkpoints} checkpoints per slot may take {units.size(held)} of RAM"
        flag = case.typed("ctx_checkpoints", "--ctx-checkpoints")
        yield Lint("checkpoints-hold-state", flag, message, f"--ctx-checkpoints {fewer}")


CHECKS: tuple[Check, ...] = (headroom, prompt_cache, unevictable, checkpoints)
