"""Predicted speed, corrected by what this machine was seen to do with this family of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.facts.workload import Workload
from planner.plans.speed import Band, Speed

if TYPE_CHECKING:
    from planner.facts.observed import Verified


def corrected(speed: Speed, verified: Verified | None, devices: tuple[str, ...], work: Workload) -> Speed:
    """Rates times the observed ratios, for settings on the devices that were observed; others stay as they are.

    A ratio that was not cut to its bounds makes its band as narrow as the runs justify.
    """
    if verified is None or verified.devices != devices or not verified.runs:
        return speed
    decode = _scaled(speed.decode_tps, verified.decode_ratio, verified.decode_spread, verified.bounded)
    prefill = _scaled(speed.prefill_tps, verified.prefill_ratio, verified.prefill_spread, verified.bounded)

    def turn(prefill_tps: float, decode_tps: float) -> float:
        return work.prompt_tokens / prefill_tps + work.answer_tokens / decode_tps

    turn_s = Band(turn(prefill.high, decode.high), turn(prefill.mid, decode.mid), turn(prefill.low, decode.low))
    return Speed(decode_tps=decode, prefill_tps=prefill, turn_s=turn_s, bound_by=speed.bound_by)


def _scaled(band: Band, ratio: float | None, justified: float | None, bounded: bool) -> Band:
    if ratio is None:
        return band
    spread = band.high / band.mid
    spread = spread if bounded or justified is None else min(spread, justified)
    mid = band.mid * ratio
    return Band(mid / spread, mid, mid * spread)
