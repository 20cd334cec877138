"""Observed against predicted, term by term. The prediction is that for the very prompt and answer that ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from planner import units
from planner.facts.observed import Answer, Buffer, Placement, Sample
from planner.plans.memory import DeviceMemory, HostMemory, total
from planner.plans.plan import Candidate
from planner.plans.speed import Band
from planner.plans.verified import Compared
from planner.units import MIB
from planner.verify.budget import LEAST_PROMPT

HOST: Final = "Host"
MAPPED: Final = "_Mapped"
SHARE: Final = 0.02
SLACK_BYTES: Final = 16 * MIB
"""Bytes may be over by 2 % or 16 MiB, as for the oracle's compute buffers."""


def speeds(predicted: Candidate, answer: Answer) -> Iterator[Compared]:
    """Decode and prefill of one answer; a rate is out when it is under the low end of its band.

    Prefill of a few tokens is what a start of every multiply costs, no rate: it is shown, not judged.
    """
    for term, band, rate, judged in (
        ("prefill", predicted.speed.prefill_tps, answer.prefill_tps, answer.prompt_n >= LEAST_PROMPT),
        ("decode", predicted.speed.decode_tps, answer.decode_tps, True),
    ):
        if rate is not None:
            yield Compared(term, "tok/s", band, rate, not judged or rate >= band.low, judged)


def buffers(predicted: Candidate, placement: Placement) -> Iterator[Compared]:
    """What the engine logged, per device and for host memory; nothing of an engine that logs no sizes.

    Beside a device a mapped weight buffer is a range of the file, tensors that were copied to the device included
    (``llama_model_loader::get_mapping_range``, b11549): it says nothing of the host's bytes and is left out. So is a
    kind of buffer that the engine logs nowhere.
    """
    if not placement.buffers:
        return
    memory = predicted.memory
    silent = {"model", "context", "compute"} - {b.kind for b in placement.buffers}
    for device in memory.devices:
        yield from _kinds(device.id, device, [b for b in placement.buffers if base(b.device) == device.id], *silent)
    ids = {device.id for device in memory.devices}
    host = [b for b in placement.buffers if base(b.device) not in ids]
    ranges = bool(ids) and any(base(b.device).endswith(MAPPED) for b in host)
    yield from _kinds(HOST, memory.host, host, *silent, *(("model",) if ranges else ()))


def base(device: str) -> str:
    """``RPC0`` for ``RPC0[127.0.0.1:50052]``; ``CUDA_Host`` and ``CPU_Mapped`` stay, they are host memory."""
    return device.partition("[")[0]


def _kinds(name: str, memory: DeviceMemory | HostMemory, found: list[Buffer], *unknown: str) -> Iterator[Compared]:
    cache = memory.cache if isinstance(memory, DeviceMemory) else ()
    for kind, terms in (("model", memory.model), ("context", (*memory.context, *cache)), ("compute", memory.compute)):
        observed = sum(b.n_bytes for b in found if b.kind == kind)
        expected = total(terms)
        if kind not in unknown and (observed or expected):
            yield _bytes(f"{name} {kind}", expected, observed)


def peaks(predicted: Candidate, samples: tuple[Sample, ...]) -> Iterator[Compared]:
    """The most that was in use on each device, everybody's together, against used before plus predicted."""
    seen = peak_bytes(samples)
    for device in predicted.memory.devices:
        if device.id in seen:
            yield _bytes(f"{device.id} peak", device.predicted_bytes, seen[device.id], device.used_before_bytes)


def overrun(predicted: Candidate, samples: tuple[Sample, ...], reserve: tuple[tuple[str, int], ...]) -> str:
    """Which device needed more than predicted and has less than its reserve free; empty if there is none."""
    keep = dict(reserve)
    for device, found in zip(predicted.memory.devices, _known_peaks(predicted, samples), strict=True):
        free = device.total_bytes - (found.observed if found else 0)
        if found is not None and not found.within and free < keep.get(device.id, 0):
            more, rule = units.mib(found.observed - found.predicted.mid), units.mib(keep[device.id])
            return f"{device.id} needs {more} more than predicted: {units.mib(free)} are free, the rule is {rule}"
    return ""


def _known_peaks(predicted: Candidate, samples: tuple[Sample, ...]) -> list[Compared | None]:
    found = {item.term.partition(" ")[0]: item for item in peaks(predicted, samples)}
    return [found.get(device.id) for device in predicted.memory.devices]


def peak_bytes(samples: tuple[Sample, ...]) -> dict[str, int]:
    """Per device the most that was in use; devices that never said are not there."""
    found: dict[str, int] = {}
    for gpu in (gpu for sample in samples for gpu in sample.gpus):
        if gpu.used_bytes is not None:
            found[gpu.device] = max(gpu.used_bytes, found.get(gpu.device, 0))
    return found


def extra(compared: tuple[Compared, ...], devices: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Bytes that each device needed beyond the prediction: by its peak, or by its buffers where that is more."""
    found: dict[str, int] = {}
    for device in devices:
        mine = {c.term: c for c in compared if c.term.partition(" ")[0] == device}
        over = sum(round(c.observed - c.predicted.mid) for term, c in mine.items() if not term.endswith(" peak"))
        peak = mine.get(f"{device} peak")
        most = max(over, round(peak.observed - peak.predicted.mid) if peak else 0)
        if any(not c.within for c in mine.values()) and most > 0:
            found[device] = most
    return tuple(found.items())


def _bytes(term: str, expected: int, observed: int, before: int = 0) -> Compared:
    """Bytes of the plan on top of others' from before, which are known exactly."""
    most = before + max(expected * (1.0 + SHARE), expected + SLACK_BYTES)
    return Compared(term, "bytes", Band(0.0, float(before + expected), most), float(observed), observed <= most)
