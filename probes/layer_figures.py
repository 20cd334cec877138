"""Layer rates in the form of the store, and back."""

from __future__ import annotations

from typing import Any

from planner.facts.machine import LayerPoint, LayerRate
from planner.facts.reading import Reading
from probes import figures


def to_json(rate: LayerRate) -> dict[str, Any]:
    data: dict[str, Any] = {
        "model": rate.model,
        "device": rate.device,
        "kind": rate.kind,
        "expert_type": rate.expert_type,
        "prefill_batch": rate.prefill_batch,
        "prefill_fixed_s": rate.prefill_fixed_s,
        "prefill_points": [[p.tokens, figures.to_json(p.seconds)] for p in rate.prefill_points],
        "experts": rate.experts,
        "read_bytes": rate.read_bytes,
        "layers": rate.layers,
        "threads": rate.threads,
    }
    for name in ("decode_s", "prefill_s_per_token", "crossing_s"):
        reading: Reading | None = getattr(rate, name)
        data[name] = None if reading is None else figures.to_json(reading)
    return data


def from_json(data: Any) -> LayerRate:
    """Raises ValueError, KeyError or TypeError for anything that ``to_json`` does not write."""
    if data["experts"] not in ("device", "host") or data["kind"] not in ("moe", "dense"):
        raise ValueError("a layer is moe or dense, its experts on the device or the host")
    if not isinstance(data["device"], str) or not isinstance(data["model"], str):
        raise ValueError("a layer belongs to a model and a device")
    expert_type = data["expert_type"]
    return LayerRate(
        model=data["model"],
        device=data["device"],
        kind=data["kind"],
        expert_type=None if expert_type is None else str(expert_type),
        decode_s=_reading(data["decode_s"]),
        prefill_s_per_token=_reading(data["prefill_s_per_token"]),
        prefill_batch=_count(data["prefill_batch"]),
        prefill_fixed_s=max(float(data["prefill_fixed_s"]), 0.0),
        prefill_points=tuple(LayerPoint(int(n), figures.from_json(s)) for n, s in data["prefill_points"]),
        experts=data["experts"],
        read_bytes=_count(data["read_bytes"]),
        layers=_count(data["layers"]),
        threads=_count(data["threads"]),
        crossing_s=_reading(data["crossing_s"]),
    )


def _reading(data: Any) -> Reading | None:
    return None if data is None else figures.from_json(data)


def _count(value: Any) -> int | None:
    if value is None:
        return None
    if type(value) is not int or value <= 0:
        raise ValueError(f"expected a positive whole number, found {value!r}")
    return value
