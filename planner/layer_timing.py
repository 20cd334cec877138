"""Times a layer of the user's model: cuts two files, runs both, removes them.

It joins what may not know each other: the file format (``planner.gguf``), the bytes a token reads
(``planner.cost``) and the engines (``probes``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from planner.cost.layer_blocks import blocks_of
from planner.errors import CutError
from planner.facts.layer_cut import CutPair
from planner.facts.machine import Machine
from planner.facts.model import Model
from planner.gguf.cut import Active, choose
from planner.gguf.cut_file import Cutter
from planner.gguf.cut_folder import base_folder, cut_folder, free_bytes
from planner.units import GIB, size
from probes import bench_engine, bench_layer, layer_figures, llama_find
from probes.bench_engine import Placement
from probes.host import Host
from probes.probe import Absent, Failed, Found, Outcome
from probes.timed import Figures, Subject

LARGEST_CUT: Final = 16 * GIB
"""Both files together, however much room there is: 16 s at 1 GiB/s."""
SPARE_DISK: Final = 2 * GIB
SHARE_OF_RAM: Final = 0.5
"""The page cache holds what was just written, and the engine a copy of it."""
SPARE_VRAM: Final = GIB


def time_layers(
    host: Host, subject: Subject, seconds: float, llama: str | None, rpc: tuple[str, ...]
) -> Outcome[Figures]:
    """Rates of every placement that could be timed within the seconds; the note says what was left out.

    Args:
        llama: folder or program the user named.
        rpc: servers of remote devices.
    """
    place = llama_find.find(host, llama)
    bench = bench_engine.find(host, place, rpc) if place is not None else "no llama.cpp to time it with"
    model = subject.model
    if isinstance(bench, str) or model is None:
        return Absent(str(bench))
    start = host.clock()
    end = start + seconds
    try:
        base = base_folder()
        pair = choose(model, _active(model), _largest(subject.machine, base))
        with cut_folder(base) as folder:
            half = start + seconds / 2
            pair = _written(model, pair, folder, lambda: host.clock() > half)
            wanted = _placements(subject.machine, model, pair)
            cpu = subject.machine.cpu
            threads = cpu.performance_cores or cpu.physical_cores or cpu.logical_cores or 1
            begun = host.clock()
            rates, reports = bench_layer.measure(host, bench, pair, wanted, threads, end - begun)
    except CutError as error:
        return Absent(f"no layers were cut out: {error}")
    lost = [f"{report.name} left out: {report.reason}" for report in reports if report.status != "found"]
    if not rates:
        before = f"before that, writing the layers to a file took {begun - start:.1f} s"
        return Failed("; ".join([*(lost or ["no time left"]), before]))
    found = [f"{report.name}: {report.reason}" for report in reports if report.status == "found"]
    return Found({"rates": [layer_figures.to_json(rate) for rate in rates]}, "; ".join(found + lost))


def _active(model: Model) -> tuple[Active, ...]:
    return tuple(Active(b.dense_bytes, round(b.expert_bytes * b.used)) for b in blocks_of(model))


def _largest(machine: Machine, base: str) -> int:
    """What both files may take. Raises CutError if the disk has no room for any."""
    room = free_bytes(base) - SPARE_DISK
    if room <= 0:
        raise CutError(base, expected=f"{size(SPARE_DISK)} of free space", found=size(free_bytes(base)))
    ram = machine.ram.available_bytes
    return min(LARGEST_CUT, room, int(ram * SHARE_OF_RAM) if ram is not None else LARGEST_CUT)


def _written(model: Model, pair: CutPair, folder: str, late: Callable[[], bool]) -> CutPair:
    cutter = Cutter(model)
    pair = replace(pair, shallow_path=f"{folder}/shallow.gguf", deep_path=f"{folder}/deep.gguf")
    cutter.write(pair.shallow, pair.shallow_path, late)
    cutter.write(pair.deep, pair.deep_path, late)
    return pair


def _placements(machine: Machine, model: Model, pair: CutPair) -> tuple[Placement, ...]:
    """Every device; those too full for the deep cut take it with the experts in RAM only."""
    tensors = [t for t in model.tensors if t.layer is None or t.layer < pair.deep]
    needed = sum(t.n_bytes for t in tensors) + SPARE_VRAM
    full = {gpu.id for gpu in machine.gpus if gpu.free_bytes is not None and gpu.free_bytes < needed}
    every = bench_layer.placements((gpu.id for gpu in machine.gpus), moe=model.is_moe)
    return tuple(p for p in every if p.host_experts or p.device not in full)
