"""Measured layers in place of estimated ones: what a block takes where one like it was timed."""

from __future__ import annotations

from typing import Final, NamedTuple

from planner.cost.layer_blocks import Block
from planner.cost.rates import THREAD_POWER
from planner.cost.tape import HOST
from planner.facts.machine import LayerRate
from planner.facts.model import Model
from planner.plans.settings import LoadMode, Settings

DEVICE: Final = "device"
ON_HOST: Final = "host"


class Prompted(NamedTuple):
    """Seconds of one block per ubatch and per prompt token, from ubatches of up to ``tokens`` from nothing."""

    fixed_s: float
    per_token_s: float
    tokens: int


class Measured(NamedTuple):
    """Seconds of one block: per answered token, and of a prompt. None: not timed."""

    decode_s: float | None
    prefill: Prompted | None


NOTHING: Final = Measured(None, None)


class LayerTimes:
    """The rates of one model, looked up by block and placement.

    A block takes the rate of its own kind and expert type; of another type it takes the rate of the same kind,
    scaled by the bytes a token reads. A part of the experts on the host lies between none and all.
    """

    def __init__(self, model: Model, layers: tuple[LayerRate, ...]) -> None:
        self._by_place: dict[tuple[str, str], list[LayerRate]] = {}
        for rate in layers:
            if rate.model == model.fingerprint:
                self._by_place.setdefault((rate.device, rate.experts), []).append(rate)
        self._known: dict[tuple[Block, str, str], tuple[Measured, int | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_place)

    def block(self, block: Block, device: str, share: float, settings: Settings, *, offload: bool) -> Measured:
        """Times of a block.

        Args:
            share: part of its expert bytes in host memory (ignored for a block on the host).
            offload: the prompt's host multiplies run on a device, weights copied for it.
        """
        if not self._by_place:
            return NOTHING
        if device == HOST:
            alone = self._timed(block, HOST, DEVICE, settings)
            return Measured(alone.decode_s, None if offload else alone.prefill)
        whole = self._timed(block, device, DEVICE, settings)
        if share == 0.0:
            return whole
        if settings.load_mode is not LoadMode.NONE or settings.no_host:
            return NOTHING  # timed with the experts in pinned memory
        mixed = self._timed(block, device, ON_HOST, settings)
        streams = offload and settings.devices[:1] == (device,)
        decode_s = _between(whole.decode_s, mixed.decode_s, share)
        if not streams or mixed.prefill is None:
            return Measured(decode_s, None)
        fixed = _between(whole.prefill and whole.prefill.fixed_s, mixed.prefill.fixed_s, share)
        slope = _between(whole.prefill and whole.prefill.per_token_s, mixed.prefill.per_token_s, share)
        timed = None if fixed is None or slope is None else Prompted(fixed, slope, mixed.prefill.tokens)
        return Measured(decode_s, timed)

    def _timed(self, block: Block, device: str, experts: str, settings: Settings) -> Measured:
        key = (block, device, experts)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._look(block, device, experts)
        measured, threads = found
        if threads is None or settings.threads is None or settings.threads == threads:
            return measured
        return self._with_threads(measured, threads, settings.threads) if device == HOST else NOTHING

    @staticmethod
    def _with_threads(measured: Measured, timed: int, given: int) -> Measured:
        """A block on the CPU alone with fewer threads than it was timed with: slower as RAM is read more slowly, and
        prompts in proportion; more threads than cores are no faster, and nothing is known of them."""
        if given > timed:
            return NOTHING
        decode, prompt = (timed / given) ** THREAD_POWER, timed / given
        return Measured(
            measured.decode_s and measured.decode_s * decode,
            measured.prefill and measured.prefill._replace(per_token_s=measured.prefill.per_token_s * prompt),
        )

    def _look(self, block: Block, device: str, experts: str) -> tuple[Measured, int | None]:
        like = [rate for rate in self._by_place.get((device, experts), ()) if rate.kind == block.kind.kind]
        if not like:
            return NOTHING, None
        rate = next((r for r in like if r.expert_type == block.kind.expert_type), like[0])
        scale = block.active_bytes / rate.read_bytes if rate.read_bytes else 1.0
        decode, slope = rate.decode_s, rate.prefill_s_per_token
        most = rate.prefill_batch or 0
        prefill = Prompted(rate.prefill_fixed_s * scale, slope.value * scale, most) if slope else None
        return Measured(decode.value * scale if decode else None, prefill), rate.threads


def _between(none: float | None, everything: float | None, share: float) -> float | None:
    """Linear in the share; None unless both ends that it needs are known."""
    if share >= 1.0:
        return everything
    return None if none is None or everything is None else none + (everything - none) * share
