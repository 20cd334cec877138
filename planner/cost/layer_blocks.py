"""What one block costs to run: the bytes and multiply-adds that the speed model counts."""

from __future__ import annotations

from math import prod
from typing import Final, NamedTuple

from planner.facts.layer_cut import LayerKind, kinds_of
from planner.facts.model import Model, Role

CONVOLUTION_ROWS: Final = 3
"""Rows that a recurrent block's convolution keeps: its kernels span four tokens."""

NOT_READ: Final = frozenset({Role.EMBEDDING, Role.LOOKUP, Role.NEXTN})


class Block(NamedTuple):
    """Bytes and multiply-adds per token (dense) or in total (experts)."""

    kind: LayerKind
    dense_bytes: int
    dense_params: int
    expert_bytes: int
    expert_params: int
    used: float
    """Share of the experts that one token uses."""
    kv_elements: tuple[int, int]
    window: int
    indexed: bool
    """Chooses the cells it attends to with an indexer."""
    recurrent: bool
    """Keeps a recurrent state."""
    score_flop: float
    """Floating-point operations of attention per query token and cached token."""
    row_elements: int
    """Activations of one token that pass through memory between multiplies: the residual (all its streams), the inputs
    and outputs of the experts it uses, the row of a convolution."""
    state_elements: int
    """Recurrent state that every token changes."""
    slices: int
    """Matrices of single experts."""

    @property
    def active_bytes(self) -> float:
        """Weights that one token reads."""
        return self.dense_bytes + self.expert_bytes * self.used


def blocks_of(model: Model) -> tuple[Block, ...]:
    """One ``Block`` per block that runs (multi-token-prediction blocks do not)."""
    kinds = kinds_of(model)
    streams = _streams(model)
    sums = {layer.index: [0, 0, 0, 0, 0] for layer in model.layers if not layer.nextn}
    for tensor in model.tensors:
        if tensor.layer in sums and tensor.role not in NOT_READ:
            at = 2 if tensor.role is Role.EXPERT else 0
            sums[tensor.layer][at] += tensor.n_bytes
            sums[tensor.layer][at + 1] += prod(tensor.shape)
            sums[tensor.layer][4] += tensor.shape[-1] if at and len(tensor.shape) == 3 else 0
    blocks = []
    for layer in model.layers:
        if layer.index in sums:
            used = (layer.n_expert_used or model.n_expert_used) / max(model.n_expert, 1)
            kv = (layer.n_embd_k + layer.indexer_k, layer.n_embd_v + layer.indexer_v)
            dense_bytes, dense_params, expert_bytes, expert_params, slices = sums[layer.index]
            kind = kinds[layer.index]
            score = 2.0 * layer.n_head * (layer.head_k + layer.head_v) if layer.n_embd_k else 0.0
            routed = (layer.n_expert_used or model.n_expert_used) * (model.n_embd + model.n_ff_exp)
            rows = model.n_embd * streams + (routed if expert_params else 0) + layer.state_r // CONVOLUTION_ROWS
            sizes = (dense_bytes, dense_params, expert_bytes, expert_params)
            flags = (layer.indexer_k > 0, layer.state_s > 0)
            counts = (rows, layer.state_s, slices)
            blocks.append(Block(kind, *sizes, used, kv, layer.window, *flags, score, *counts))
    return tuple(blocks)


def _streams(model: Model) -> int:
    """Parallel residual streams (hyper-connections), else 1."""
    found = dict(model.metadata).get(f"{model.arch}.hyper_connection.count")
    return max(found, 1) if isinstance(found, int) else 1
