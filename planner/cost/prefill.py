"""Seconds of a prompt: copies of the host's experts over the link, then the multiplies of every token.

``ceil(prompt / n_ubatch)`` passes each copy the experts that a ubatch touches; the multiplies, the activations between
them and the scan of a recurrent state are per token. Timed layers stand in for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from planner.cost import rates
from planner.cost.engines import EngineTraits
from planner.cost.layer_blocks import Block
from planner.cost.layer_times import LayerTimes
from planner.cost.rates import Rates
from planner.cost.seconds import Costs, Group, touched_share
from planner.cost.tape import HOST
from planner.facts.machine import Backend
from planner.plans.settings import LoadMode, Settings


@dataclass(slots=True)
class _Copies:
    """What one pass brings to the first device, and reads of the host's weights."""

    n_bytes: float = 0.0
    pieces: float = 0.0
    read: float = 0.0


class Prefill(NamedTuple):
    """Prices prompts of one length for one model on one machine.

    Args:
        backends: by device id.
        prompt: tokens of it.
    """

    rates: Rates
    backends: dict[str, Backend]
    layers: LayerTimes
    engine: EngineTraits
    prompt: int

    def costs(self, settings: Settings, groups: tuple[Group, ...], resident: float) -> Costs:
        """Seconds for the whole prompt; ``resident`` is the share of the host's hot weights that RAM holds."""
        passes, costs, copies = ceil(self.prompt / settings.n_ubatch), Costs(), _Copies()
        for group in groups:
            self._add(costs, copies, settings, group, passes)
        if copies.n_bytes:
            costs.pcie = passes * self._copy_s(settings, copies)
        if not settings.devices and not settings.repack:
            costs.compute /= rates.UNPACKED_SHARE
        costs.disk = passes * copies.read * (1.0 - resident) / self.rates.disk.value
        return costs

    def _add(self, costs: Costs, copies: _Copies, settings: Settings, group: Group, passes: int) -> None:
        """Add what blocks of one kind take and copy."""
        block, device, host_share, n = group
        tokens = min(settings.n_ubatch, self.prompt)
        share, part = 1.0 if device == HOST else host_share, touched_share(block.used, tokens)
        touched = block.expert_bytes * part
        weights = touched * share + (block.dense_bytes if device == HOST else 0)
        copies.read += n * weights
        helper = self._helper(settings, block, tokens)
        timed = self.layers.block(block, device, host_share, settings, offload=helper != HOST).prefill
        if timed is not None:
            scored = self._attention_s(device, block, max(self._attended(block) - timed.tokens / 2, 0.0))
            seconds = n * (passes * timed.fixed_s + self.prompt * (timed.per_token_s + scored))
            costs.compute += seconds
            costs.measured += seconds
            return
        if helper != HOST:
            copies.n_bytes += n * weights
            copies.pieces += n * share * block.slices * part * (1.0 - part)
        if device != HOST:
            held = block.dense_bytes + touched * (1.0 - share)
            costs.gpu += passes * n * held / self.rates.vram(device)
        costs.compute += self.prompt * n * self._token_s(block, device, share, helper, tokens)

    def _helper(self, settings: Settings, block: Block, tokens: int) -> str:
        """Where multiplies with the host's weights run: on the first device, but RPC devices do not take them."""
        first = settings.devices[0] if settings.devices else HOST
        if first == HOST or not settings.op_offload or self.backends[first] is Backend.RPC:
            return HOST
        return first if tokens >= self.engine.offload_tokens(block.used) else HOST

    def _copy_s(self, settings: Settings, copies: _Copies) -> float:
        """Seconds in which one pass's experts arrive; of pageable memory every run of neighbours is a call of its
        own that waits."""
        first = settings.devices[0]
        link, cuda = self.rates.gpus[first], self.backends[first] is Backend.CUDA
        if settings.load_mode is LoadMode.NONE and cuda and not settings.no_host:
            return copies.n_bytes / link.pinned.value
        return copies.n_bytes / link.pageable.value + (copies.pieces * rates.PIECE_S if cuda else 0.0)

    def _token_s(self, block: Block, device: str, share: float, helper: str, tokens: int) -> float:
        """Seconds of one prompt token in a block; ``helper`` does the multiplies with the host's weights."""
        experts = 2.0 * block.expert_params * block.used
        rows = tokens * block.used / touched_share(block.used, tokens) if block.used else 1.0
        dense_on = helper if device == HOST else device
        fill = rows / (rows + rates.EXPERT_HALF_TOKENS) * rates.EXPERT_SHARE
        return (
            self._multiply_s(dense_on, 2.0 * block.dense_params, rates.DENSE_SHARE)
            + self._attention_s(device, block, self._attended(block))
            + self._multiply_s(helper, experts * share, fill)
            + self._multiply_s(device, experts * (1.0 - share), fill)
            + (self._between_s(device, block) if device != HOST else 0.0)
        )

    def _attended(self, block: Block) -> float:
        """Tokens that one of the prompt attends to, in the mean; a layer was timed on one ubatch from nothing."""
        return min(self.prompt / 2, block.window) if block.window else self.prompt / 2

    def _attention_s(self, device: str, block: Block, cells: float) -> float:
        """Seconds in which one token attends to so many."""
        flop = block.score_flop * cells
        if device == HOST:
            return flop / (min(self.rates.core_flops.value, rates.CORE_PROMPT_SCORE_FLOPS) * self.rates.cores)
        return self._multiply_s(device, flop, rates.ATTENTION_SHARE)

    def _between_s(self, device: str, block: Block) -> float:
        """Seconds of one token between the multiplies of a block on a GPU: activations that pass through its memory,
        and the scan of a recurrent state."""
        passed = 4.0 * block.row_elements * rates.ROW_PASSES / self.rates.vram(device)
        return passed + self._multiply_s(device, rates.SCAN_FLOP * block.state_elements, rates.SCAN_SHARE)

    def _multiply_s(self, device: str, flop: float, share: float) -> float:
        """Seconds of ``flop`` on a device; a GPU reaches ``share`` of its f16 rate."""
        if device == HOST:
            return flop / (self.rates.core_flops.value * self.engine.core_gain * self.rates.cores)
        gain = rates.METAL_GAIN if self.backends[device] is Backend.METAL else 1.0
        return flop / (self.rates.gpus[device].f16.value * share * gain)
