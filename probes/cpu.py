"""The processor: name, cores we may run on, and the instructions ggml has kernels for.

Linux: ``/proc/cpuinfo``, ``/sys/devices`` and the affinity mask in ``/proc/self/status``; macOS: ``sysctl``;
elsewhere psutil and py-cpuinfo. Compare with ``lscpu``.
"""

from __future__ import annotations

from typing import Any, Final

from planner.facts.machine import Cpu, Os
from probes import cpu_topology, sysctl
from probes.host import Host
from probes.probe import Absent, Failed, Found, Outcome, Request, Seen
from probes.text import clean, cpu_list, whole

_ISA: Final = (
    "sse3", "ssse3", "avx", "avx2", "avx_vnni", "f16c", "fma", "bmi2", "avx512f", "avx512_vbmi", "avx512_vnni",
    "avx512_bf16", "amx_tile", "amx_int8", "neon", "dotprod", "i8mm", "fp16", "bf16", "sve", "sve2", "sme",
)  # fmt: skip
"""Instruction sets that ggml selects CPU kernels by (ggml/src/ggml-cpu/CMakeLists.txt, b11312)."""
_KERNEL_NAMES: Final = {
    "pni": "sse3", "avx512vbmi": "avx512_vbmi", "avx512vnni": "avx512_vnni", "asimd": "neon",
    "asimddp": "dotprod", "asimdhp": "fp16",
}  # fmt: skip
_APPLE: Final = {
    "hw.optional.AdvSIMD": "neon", "hw.optional.arm.FEAT_DotProd": "dotprod", "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_FP16": "fp16", "hw.optional.arm.FEAT_BF16": "bf16", "hw.optional.arm.FEAT_SME": "sme",
    "hw.optional.avx2_0": "avx2", "hw.optional.avx512f": "avx512f",
}  # fmt: skip
_APPLE_COUNTS: Final = ("hw.physicalcpu", "hw.perflevel0.physicalcpu", "hw.logicalcpu")


def read(host: Host, _request: Request, _seen: Seen) -> Outcome[Cpu]:
    if host.os is Os.MACOS:
        values = sysctl.read(host, ("machdep.cpu.brand_string", *_APPLE_COUNTS, *_APPLE))
        return Found(parse_sysctl(values)) if values else Failed("sysctl answered nothing")
    text = host.read_text("/proc/cpuinfo")
    if text is not None:
        return Found(_linux(host, text))
    psutil = host.library("psutil")
    if psutil is None:
        return Absent("no /proc/cpuinfo, and psutil is not installed")
    library = host.library("cpuinfo")
    return Found(parse_cpuinfo(library.get_cpu_info() if library else {}, psutil))


def _linux(host: Host, text: str) -> Cpu:
    blocks = parse_blocks(text)
    status = host.read_text("/proc/self/status") or ""
    allowed = parse_allowed(status) or frozenset(blocks)
    cores = cpu_topology.cores(host, blocks, allowed)
    fast = cpu_topology.fast_cpus(host, allowed)
    first = next(iter(blocks.values()), {})
    name = first.get("model name") or first.get("Hardware") or first.get("cpu model")
    return Cpu(
        name=clean(name) if name else None,
        physical_cores=len(set(cores.values())) or None,
        performance_cores=len({cores[n] for n in fast if n in cores}) or None,
        logical_cores=len(allowed) or None,
        isa=isa((first.get("flags") or first.get("Features") or "").split()),
    )


def parse_blocks(text: str) -> dict[int, dict[str, str]]:
    """``/proc/cpuinfo`` → fields by logical CPU."""
    blocks: dict[int, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = (part.strip() for part in line.partition(":"))
        number = whole(value) if name == "processor" else None
        if number is not None:
            current = blocks.setdefault(number, {})
        elif colon:
            current[name] = value
    return blocks


def parse_allowed(status: str) -> frozenset[int] | None:
    """``Cpus_allowed_list`` of ``/proc/self/status``: the CPUs this process may run on."""
    lines = (line.partition(":") for line in status.splitlines())
    return next((cpu_list(value) for name, _, value in lines if name == "Cpus_allowed_list"), None)


def isa(names: list[str]) -> tuple[str, ...]:
    """Kernel or library spellings → the instruction sets ggml uses, in a fixed order."""
    ours = {_KERNEL_NAMES.get(name.lower(), name.lower()) for name in names}
    return tuple(name for name in _ISA if name in ours)


def parse_sysctl(values: dict[str, str]) -> Cpu:
    physical, fast, logical = (whole(values.get(name)) or None for name in _APPLE_COUNTS)
    name = values.get("machdep.cpu.brand_string")
    flags = [ours for theirs, ours in _APPLE.items() if values.get(theirs) == "1"]
    return Cpu(clean(name) if name else None, physical, fast or physical, logical, isa(flags))


def parse_cpuinfo(info: dict[str, Any], psutil: Any) -> Cpu:
    """py-cpuinfo's answer and psutil's counts; neither tells performance cores apart, so those stay unknown."""
    name = info.get("brand_raw")
    return Cpu(
        name=clean(str(name)) if name else None,
        physical_cores=psutil.cpu_count(logical=False) or None,
        logical_cores=psutil.cpu_count(logical=True) or None,
        isa=isa([str(flag) for flag in info.get("flags", ())]),
    )
