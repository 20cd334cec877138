"""Which device holds which block: llama.cpp's layer map, from the settings alone.

Mirrors ``llama_model_base::load_tensors`` (src/llama-model.cpp, b11434: ``i_gpu_start``, ``get_layer_buft_list``).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from planner.cost.tape import HOST
from planner.facts.machine import DriverModel, Gpu, Machine
from planner.plans.settings import Settings, SplitMode


def _f32(value: float) -> float:
    """Round to a C float: llama.cpp compares split points in single precision."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


class Span(NamedTuple):
    """Blocks ``start <= i < stop`` live on ``device``; ``has_output`` when the output layer is there, too."""

    device: str
    start: int
    stop: int
    has_output: bool


def active_devices(settings: Settings) -> tuple[str, ...]:
    """Devices llama.cpp opens: all that are named, or only the first for split mode none."""
    return settings.devices[:1] if settings.split_mode is SplitMode.NONE else settings.devices


def cuts_tensors(settings: Settings) -> bool:
    """Whether single tensors are cut over several devices: counted as whole layers by the same shares."""
    return settings.split_mode in (SplitMode.ROW, SplitMode.TENSOR) and len(settings.devices) > 1


def known_gpus(machine: Machine) -> dict[str, Gpu]:
    """Devices of the machine by id."""
    return {gpu.id: gpu for gpu in machine.gpus}


def used_before(gpu: Gpu) -> int:
    """Bytes of the device that are not for this plan: what others hold now, 0 if nothing is known.

    Outside WDDM the driver's own reserve counts too, where it shows: NVML's total minus used is more than free
    by it (616 MiB on a datacentre card). Under WDDM the headroom rule was measured on total minus used.
    """
    gap = 0 if gpu.free_bytes is None else max(gpu.total_bytes - gpu.free_bytes, 0)
    if gpu.used_bytes is None:
        return gap
    return gpu.used_bytes if gpu.driver_model is DriverModel.WDDM else max(gpu.used_bytes, gap)


def split_shares(settings: Settings, machine: Machine) -> tuple[float, ...]:
    """Share per active device: ``tensor_split``, or free VRAM when there is none (or it is all zero)."""
    devices = active_devices(settings)
    given = settings.tensor_split[: len(devices)]
    if any(given):
        return tuple(given) + (0.0,) * (len(devices) - len(given))
    gpus = known_gpus(machine)
    free = []
    for device in devices:
        gpu = gpus[device]
        room = gpu.total_bytes - used_before(gpu) if gpu.free_bytes is None else gpu.free_bytes
        free.append(float(room or machine.ram.total_bytes))
    return tuple(free)


def layer_devices(
    n_layer: int, n_gpu_layers: int, devices: tuple[str, ...], shares: tuple[float, ...]
) -> tuple[str, ...]:
    """Device of every block and, last, of the output layer: ``n_layer + 1`` ids.

    ``i0 = max(n_layer + 1 - n_gpu_layers, 0)``; block i goes to the first device whose cumulative share
    is above ``(i - i0) / n_active`` (src/llama-model.cpp:1591-1603, b11434).
    """
    if not devices or n_gpu_layers <= 0:
        return (HOST,) * (n_layer + 1)
    first = max(n_layer + 1 - n_gpu_layers, 0)
    active = min(n_gpu_layers, n_layer + 1)
    cumulative, points = 0.0, []
    for share in shares:
        cumulative = _f32(cumulative + _f32(share))
        points.append(cumulative)
    points = [_f32(point / cumulative) for point in points]
    result = [HOST] * first
    for index in range(active):
        position = _f32(index / active)
        result.append(next((d for d, p in zip(devices, points, strict=True) if p > position), devices[-1]))
    return tuple(result)


def spans(layer_map: tuple[str, ...]) -> tuple[Span, ...]:
    """A layer map as contiguous spans, in block order; the output layer may be a span without blocks."""
    n_layer, start, found = len(layer_map) - 1, 0, []
    for index in range(1, n_layer + 2):
        if index == n_layer + 1 or layer_map[index] != layer_map[start]:
            found.append(Span(layer_map[start], start, min(index, n_layer), index == n_layer + 1))
            start = index
    return tuple(found)
