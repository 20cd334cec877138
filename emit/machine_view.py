"""What the probes found, for ``probe``."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from emit import wording
from planner import units
from planner.facts.machine import Cpu, Disk, Engine, Gpu, LayerRate, Machine, Ram

_STYLE = {"found": "green", "absent": "dim", "failed": "yellow"}


def machine_view(machine: Machine) -> RenderableType:
    """The machine's facts with their sources, then every probe with its outcome and duration."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    rows = [("system", machine.os.value), ("CPU", _cpu(machine.cpu)), ("RAM", _ram(machine.ram))]
    rows += [(wording.clean(gpu.id), _gpu(gpu)) for gpu in machine.gpus] or [("GPU", "none found")]
    rows += [("disk", _disk(machine.disk)), ("llama.cpp", _engine(machine.engine))]
    rows += [(f"layer, {wording.clean(rate.device)}", _layer(rate)) for rate in machine.layers]
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    parts: list[RenderableType] = [Text("Machine", style="bold"), Padding(table, (0, 0, 1, 2))]
    if machine.probes:
        parts += [Text("Probes", style="bold"), Padding(_probes(machine), (0, 0, 1, 2))]
    return Group(*parts)


def _cpu(cpu: Cpu) -> str:
    cores = [
        f"{number} {word}"
        for number, word in (
            (cpu.physical_cores, "physical"),
            (cpu.performance_cores, "performance"),
            (cpu.logical_cores, "logical"),
        )
        if number is not None
    ]
    parts = [wording.clean(cpu.name or "name not known"), " / ".join(cores) + " cores" if cores else "cores not known"]
    if cpu.read_threads is not None:
        n = round(cpu.read_threads.value)
        parts.append(f"{units.counted(n, 'thread')} {'reads' if n == 1 else 'read'} RAM at its full rate")
    if cpu.isa:
        parts.append(wording.clean(" ".join(cpu.isa)))
    if cpu.numa_nodes and cpu.numa_nodes > 1:
        parts.append(f"{cpu.numa_nodes} NUMA nodes")
    return "; ".join(parts)


def _ram(ram: Ram) -> str:
    available = "not known" if ram.available_bytes is None else units.size(ram.available_bytes)
    parts = [f"{units.size(ram.total_bytes)}, {available} available"]
    if ram.idle_bytes is not None:
        parts.append(f"at most {units.size(ram.idle_bytes)} seen available")
    parts.append(f"read {wording.reading(ram.read_bps, 'bytes/s')}")
    if ram.overflow is not None:
        parts.append(f"when full: {ram.overflow.value}")
    return "; ".join(parts)


def _gpu(gpu: Gpu) -> str:
    used = "use not known" if gpu.used_bytes is None else f"{units.size(gpu.used_bytes)} in use"
    kind = " ".join(
        word for word in (gpu.backend and gpu.backend.value, gpu.driver_model and gpu.driver_model.value) if word
    )
    parts = [wording.clean(gpu.name or "name not known"), f"{units.size(gpu.total_bytes)}, {used}"]
    if kind:
        parts.append(kind)
    if gpu.unified:
        parts.append("shares RAM")
    parts += [
        f"memory {wording.reading(gpu.memory_bps, 'bytes/s')}",
        f"link, pinned {wording.reading(gpu.h2d_pinned_bps, 'bytes/s')}",
        f"link, pageable {wording.reading(gpu.h2d_pageable_bps, 'bytes/s')}",
        f"f16 {wording.reading(gpu.f16_flops, 'flops')}",
    ]
    return "; ".join(parts)


def _disk(disk: Disk | None) -> str:
    if disk is None:
        return "not looked at (no model was named)"
    parts = [wording.clean(disk.path), wording.clean(disk.filesystem or "file system not known")]
    for block in sorted({point.block_bytes for point in disk.read_curve}):
        points = [point for point in disk.read_curve if point.block_bytes == block]
        depths = "/".join(str(point.queue_depth) for point in points)
        shown = ", ".join(units.rate(point.bps.value) for point in points)
        source, method = points[0].bps.source.value, wording.clean(points[0].bps.method.partition(",")[0])
        parts.append(f"{units.size(block)} x{depths}: {shown} ({', '.join(filter(None, (source, method)))})")
    if disk.remote:
        parts.append("remote")
    parts += [
        f"{word} {wording.reading(rate, 'bytes/s')}"
        for word, rate in (("in order", disk.sequential_bps), ("mapped", disk.mapped_bps))
        if rate is not None
    ]
    return "; ".join(parts)


def _engine(engine: Engine | None) -> str:
    if engine is None:
        return "none found"
    build = f"b{engine.build}" if engine.build else "build not known"
    parts = [f"{wording.clean(engine.kind)} {build}"]
    if engine.backends:
        parts.append("backends " + wording.clean(" ".join(engine.backends)))
    if engine.flags:
        parts.append(f"{len(engine.flags)} flags listed")
    if engine.server:
        parts.append(wording.clean(engine.server))
    return "; ".join(parts)


def _layer(rate: LayerRate) -> str:
    """A timed layer: decode per token, prefill per ubatch and token, milliseconds and microseconds."""
    kind = f"{rate.kind} {wording.clean(rate.expert_type or '')}".strip()
    parts = [f"{kind}, experts in RAM" if rate.experts == "host" else kind]
    if rate.decode_s is not None:
        spread = f" ± {rate.decode_s.spread * 1e3:.3f}" if rate.decode_s.spread else ""
        parts.append(f"decode {rate.decode_s.value * 1e3:.3f}{spread} ms ({rate.decode_s.source.value})")
    if rate.prefill_s_per_token is not None:
        slope = rate.prefill_s_per_token
        parts.append(f"prefill {rate.prefill_fixed_s * 1e3:.2f} ms per ubatch and {slope.value * 1e6:.2f} µs per token")
    if rate.crossing_s is not None:
        parts.append(f"crossing {rate.crossing_s.value * 1e3:.3f} ms ({rate.crossing_s.source.value})")
    return "; ".join(parts)


def _probes(machine: Machine) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("probe", "outcome", "ms"):
        table.add_column(name, justify="right" if name == "ms" else "left", no_wrap=True)
    table.add_column("reason", overflow="fold")
    for report in machine.probes:
        outcome = Text(report.status, style=_STYLE[report.status])
        took = f"{report.duration_s * 1000:,.0f}"
        table.add_row(Text(wording.clean(report.name)), outcome, took, Text(wording.clean(report.reason)))
    return table
