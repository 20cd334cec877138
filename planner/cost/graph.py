"""The graph of a context, block by block, and how much memory ggml's allocator gives it on every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from planner.cost.blocks import Block, Place
from planner.cost.draw import Env, Inputs
from planner.cost.ends import draft_logits, drafted, embedded, logits
from planner.cost.kv_cache import CSA_RATIO, Cache
from planner.cost.kv_types import is_quantised
from planner.cost.pooled import POOL_PADDING
from planner.cost.replay import replay
from planner.cost.residual import block_steps
from planner.cost.shape import Shape, pad
from planner.cost.sparse import compressed_cells
from planner.cost.tape import HOST, Tape
from planner.cost.traits import traits_of
from planner.facts.model import AttentionKind, Model
from planner.plans.settings import Settings

_PINNED_BELOW: Final = 32
"""Batches below this run every norm on its block's device, whatever is on the host (``graph_get_cb``)."""

_REPEATS: Final = 2
"""How often two kinds of blocks meet until memory repeats. Blocks with indexers are all drawn: they are right only
then (benchmarks/memory/README.md)."""

_EMPTY_POSITIONS: Final = 256
"""Positions of an empty cache (``llama_kv_cache_msa_context::get_n_pos``, b11434): a run goes on to the whole
context."""

_V_ROTATION: Final = 4 * 64 * 64
"""Rotation matrix of a quantised V cache, f32."""


class Plan(NamedTuple):
    """Who holds what, for one graph.

    Args:
        steps: blocks with their places; equal neighbours are left out where they would only repeat.
        output: device of the output layer; ``head`` of its weight.
        devices: all that take part, the host last.
        cuda: those with the fusions and f16 copies of the CUDA (and HIP) backend.
        offload: device that multiplies host weights of large batches.
        staged: some weights are on the host while a device computes with them.
        forced: llama.cpp's own assignments hold: norms of models that are wholly on devices stay with their block
            (``graph_get_cb``, src/llama-context.cpp, b11434), attention over a host cache ends there. A run without
            allocation drops them (``ggml_backend_sched_reserve_size`` resets, ggml/src/ggml-backend.cpp).
        all_on_devices: every layer is on a device.
        zeros: sparse blocks left out of ``steps`` by device: their leaves of zeros are there all the same.
        copies: how often inputs are kept (4 under pipeline parallelism).
        draft: the blocks are those of multi-token prediction, in a context of their own.
    """

    steps: tuple[tuple[int, Place], ...]
    output: str
    head: str
    devices: tuple[str, ...]
    cuda: tuple[str, ...] = ()
    offload: str | None = None
    staged: bool = False
    forced: bool = True
    all_on_devices: bool = True
    zeros: tuple[tuple[str, int], ...] = ()
    copies: int = 1
    draft: bool = False


def _k_rotation(head: int) -> int:
    """Bytes of the rotation matrix of a quantised K cache: the largest power of two that divides the head, squared
    (src/llama-kv-cache.cpp:340-348, b11434)."""
    return 4 * (head & -head) ** 2


class GraphModel:
    """Blocks of a model, with equal ones recognised."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.blocks = tuple(Block(layer, {}, {}, {}) for layer in model.layers)
        for tensor in model.tensors:
            if tensor.layer is not None:
                name = tensor.name.split(".", 2)[2].removesuffix(".weight")
                self.blocks[tensor.layer].shapes[name] = tensor.shape
                self.blocks[tensor.layer].sizes[name] = tensor.n_bytes
                self.blocks[tensor.layer].types[name] = tensor.type
        known: dict[object, int] = {}
        self._kinds = tuple(known.setdefault(_alike(block), i) for i, block in enumerate(self.blocks))
        self.traits = traits_of(model, self.blocks)
        self.leafy = tuple(
            b.pool > 0 or "indexer.attn_q_b" in b.shapes or (self.traits.indexed and b.layer.kind is AttentionKind.MLA)
            for b in self.blocks
        )
        """Blocks with leaves of zeros that they write into masks."""
        self._heads = {b.layer.window: b.layer.head_k for b in self.blocks if b.layer.n_embd_k}
        self._windows = tuple(sorted({b.layer.window for b in self.blocks}))

    def shortened(
        self, places: Sequence[tuple[int, Place]], *, staged: bool, whole: bool
    ) -> tuple[tuple[int, Place], ...]:
        """Blocks that matter: memory repeats after the second time that two kinds of blocks meet.

        Args:
            staged: host weights are copied to a device, so blocks whose host weights differ in size are not alike.
            whole: keep every block of a model whose memory need not repeat (one with states or indexers).
        """
        alike: dict[object, int] = {}
        seen: dict[object, int] = {}
        kept: list[tuple[int, Place]] = []
        before: object = None
        for order, (i, place) in enumerate(places):
            sizes = self._host_sizes(i, place) if staged else ()
            step = (self._kinds[i], place, sizes)
            seen[before, step] = seen.get((before, step), 0) + 1
            if seen[before, step] <= _REPEATS or (whole and self.traits.irregular) or order >= len(places) - 2:
                kept.append((alike.setdefault(step, i), place))
            before = step
        return tuple(kept)

    def _host_sizes(self, i: int, place: Place) -> tuple[int, ...]:
        if place.device == HOST:
            return tuple(self.blocks[i].sizes.values())
        return tuple(self.blocks[i].sizes[name] for name, device in place.elsewhere if device == HOST)

    def buffers(self, shape: Shape, settings: Settings, plan: Plan) -> dict[str, dict[str, int]]:
        """Bytes alive at the peak by device and label; they sum to the device's compute buffer."""
        env = self._env(shape, settings, plan)
        first, last = plan.steps[0], plan.steps[-1]
        env.enter(self.blocks[first[0]], first[1])
        x = drafted(env) if plan.draft else embedded(env)
        last_of = {place.device: order for order, (i, place) in enumerate(plan.steps) if self.leafy[i]}
        left_out = dict(plan.zeros)
        for order, (i, place) in enumerate(plan.steps):
            block = self.blocks[i]
            env.enter(block, place)
            env.spare_zeros = left_out.get(place.device, 0) if last_of.get(place.device) == order else 0
            narrow = order == len(plan.steps) - 1 and "hc_ffn_fn" not in block.shapes and not plan.draft
            x = block_steps(env, block, x, last=narrow)
        if plan.draft:
            draft_logits(env, self.blocks[last[0]], last[1], x, plan.head)
        else:
            logits(env, self.blocks[last[0]], x, plan.output, plan.head)
        return replay(env.tape, plan.devices, cuda=plan.cuda, copies=plan.copies)

    def masks(self, shape: Shape, settings: Settings) -> dict[str, int]:
        """Bytes of the attention masks, by name (``build_attn_inp_kq_mask``, src/llama-graph.cpp, b11434)."""
        width = 2 if shape.flash_attn else 4
        return {
            f"mask window {window}" if window else "mask": width * cells * shape.n_tokens
            for window, cells in self._cells(shape, settings).items()
        }

    def _cells(self, shape: Shape, settings: Settings) -> dict[int, int]:
        """Cells of one stream by window; without caches, the tokens of the batch."""
        if not self.traits.cached:
            return dict.fromkeys(self._windows, shape.n_tokens)
        return {window: Cache("", window=window).cells(shape, settings) for window in self._windows}

    def _indexed(self, shape: Shape, cells: Mapping[int, int], entries: Mapping[int, int]) -> int:
        """Columns of the indexer's mask: cells, pools of cells, or compressed entries."""
        if self.traits.pool:
            return pad(cells[0] // self.traits.pool * shape.n_seq + 1, POOL_PADDING)
        return cells[0] if self.traits.indexed else entries.get(CSA_RATIO, 0)

    def _env(self, shape: Shape, settings: Settings, plan: Plan) -> Env:
        tape, n, cached = Tape(plan.offload), shape.n_tokens, self.traits.cached
        n_stream = shape.n_stream if cached else 1
        cells = self._cells(shape, settings)
        width = 2 if shape.flash_attn else 4
        entries = {r: compressed_cells(shape.n_ctx_seq, r) for r in self.traits.ratios}
        return Env(
            tape=tape, traits=self.traits, n=n, n_seq=shape.n_seq, n_copies=1 + shape.n_rollback,
            n_stream=n_stream, n_ctx_seq=shape.n_ctx_seq,
            n_ubatch=shape.n_ubatch, n_outputs=shape.n_outputs,
            n_positions=shape.n_ctx_seq if plan.forced else _EMPTY_POSITIONS,
            positions=tape.leaf("inputs", 4 * n), outputs=tape.leaf("inputs", 4 * shape.n_outputs),
            inputs=self._inputs(tape, shape, settings),
            cells={window: count * n_stream for window, count in cells.items()},
            k_type=settings.type_k, v_type=settings.type_v, flash_attn=shape.flash_attn,
            end_on_host=plan.forced and not settings.kv_offload,
            cuda=plan.cuda, pinned_norms=plan.forced and (plan.all_on_devices or n < _PINNED_BELOW),
            rotated_k=cached and is_quantised(settings.type_k), rotated_v=cached and is_quantised(settings.type_v),
            entries={r: tape.leaf(f"mask compressed 1/{r}", width * found * n) for r, found in entries.items()},
            indexer_mask=tape.leaf("mask indexer", 2 * n * self._indexed(shape, cells, entries)),
            block=self.blocks[0], place=Place(HOST, HOST),
        )  # fmt: skip

    def _inputs(self, tape: Tape, shape: Shape, settings: Settings) -> dict[int, Inputs]:
        n, masks = shape.n_tokens, self.masks(shape, settings)
        v_rows = 1 if shape.flash_attn else max(b.layer.n_embd_v for b in self.blocks)
        return {
            window: Inputs(
                tape.leaf("inputs", 8 * n),
                tape.leaf("inputs", 8 * n * v_rows),
                tape.leaf(name, size),
                (tape.leaf("inputs", _k_rotation(self._heads.get(window, 64))), tape.leaf("inputs", _V_ROTATION)),
            )
            for window, (name, size) in zip(self._windows, masks.items(), strict=True)
        }


def _alike(block: Block) -> tuple[object, ...]:
    layer = block.layer
    return tuple(block.shapes.items()), layer.kind, layer.window, layer.n_expert_used, layer.compress_ratio
