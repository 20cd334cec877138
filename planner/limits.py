"""What the user fixed: pins in any spelling of their flag, budgets of devices that are there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner.errors import OptionError, TargetError
from planner.facts.workload import Target

if TYPE_CHECKING:
    from planner.facts.machine import Machine
    from planner.facts.workload import Workload


def named(workload: Workload, machine: Machine) -> Workload:
    """The workload with every pinned flag under the name of its setting.

    Raises:
        OptionError: a budget for a device that is not there.
        TargetError: an engine that no command starts.
    """
    if workload.target is Target.WORKING_SET:
        raise TargetError(
            "--target working-set",
            expected="an engine whose flags are documented",
            found="a fork that takes its experts as llama_model_params.hybrid_expert_cache_plan and has no server flag",
            advice="moeplan inspect MODEL --routing FILE --pool SIZE -o plan.csv writes the file that it loads",
        )
    known = {gpu.id for gpu in machine.gpus}
    for device, _ in workload.vram_bytes:
        if device and device not in known:
            there = " ".join(sorted(known)) or "no device"
            raise OptionError(f"--vram {device}", expected=there, found="a device that is not there")
    for gpu in machine.gpus:
        asked = dict(workload.vram_bytes).get(gpu.id, dict(workload.vram_bytes).get("", 0))
        if asked > gpu.total_bytes:
            raise OptionError(
                "--vram", expected=f"at most {gpu.total_bytes} bytes for {gpu.id}", found=f"{asked} bytes"
            )
    return replace(workload, pins=tuple(_pin(name, value) for name, value in workload.pins))


_OPPOSITE: Final = {"1": "0", "on": "off", "true": "false", "yes": "no"}


def _pin(name: str, value: str) -> tuple[str, str]:
    """``(n_cpu_moe, 3)`` for ``n-cpu-moe``, ``--n-cpu-moe``, ``-ncmoe`` or itself; ``(repack, off)`` for
    ``(--no-repack, on)``."""
    from emit.flags import negates, setting_of

    bare = name.lstrip("-")
    for spelling in (name, f"--{bare}", f"-{bare}"):
        setting = setting_of(spelling)
        if setting is not None:
            words = _OPPOSITE | {no: yes for yes, no in _OPPOSITE.items()}
            return setting, words.get(value.lower(), value) if negates(spelling) else value
    return bare.replace("-", "_"), value


def setting_named(name: str) -> str:
    """The setting behind a flag in any spelling."""
    return _pin(name, "")[0]
