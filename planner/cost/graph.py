"""The graph of a context, block by block, and how much memory ggml's allocator gives it on every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from planner.cost.blocks import Block, Env, Inputs, Place, inplace, matrix
from planner.cost.hyper import last_row
from planner.cost.kv_cache import CSA_RATIO, Cache
from planner.cost.kv_types import is_quantised
from planner.cost.replay import replay
from planner.cost.residual import block_steps
from planner.cost.shape import Shape
from planner.cost.sparse import compressed_cells
from planner.cost.tape import HOST, Node, Tape
from planner.facts.model import AttentionKind, Model, Role
from planner.plans.settings import Settings

_PINNED_BELOW: Final = 32
"""Batches below this run every norm on its block's device, whatever is on the host (``graph_get_cb``)."""

_POOL: Final = 4
"""Cells per pool of a pooling indexer whose file's ratio is not known: the published ratio."""

_V_ROTATION: Final = 4 * 64 * 64
"""Rotation matrix of a quantised V cache, f32."""

_NO_MIXED_ARCHS: Final = frozenset(("cogvlm", "deepseek4", "granite-switch", "eagle3", "dflash", "gemma4-assistant"))
"""Architectures without a graph for token and embedding rows in one batch (``llm_arch_supports_mixed_batch``,
src/llama-arch.cpp, b11434)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Who holds what, for one graph.

    Args:
        steps: blocks with their places; equal neighbours are left out where they would only repeat.
        output: device of the output layer; ``head`` of its weight.
        devices: all that take part, the host last.
        cuda: those with the fusions and f16 copies of the CUDA (and HIP) backend.
        offload: device that multiplies host weights of large batches.
        forced: llama.cpp's own assignments hold: norms of models that are wholly on devices stay with their block
            (``graph_get_cb``, src/llama-context.cpp, b11434), attention over a host cache ends there. A run without
            allocation drops them (``ggml_backend_sched_reserve_size`` resets, ggml/src/ggml-backend.cpp).
        all_on_devices: every layer is on a device.
        zeros: sparse blocks left out of ``steps`` by device: their leaves of zeros are there all the same.
        copies: how often inputs are kept (4 under pipeline parallelism).
    """

    steps: tuple[tuple[int, Place], ...]
    output: str
    head: str
    devices: tuple[str, ...]
    cuda: tuple[str, ...] = ()
    offload: str | None = None
    forced: bool = True
    all_on_devices: bool = True
    zeros: tuple[tuple[str, int], ...] = ()
    copies: int = 1


_RESIDUAL_FIRST_ARCHS: Final = frozenset(("jamba", "lfm2", "lfm2moe"))
"""Architectures that add a block's output to the residual, not the other way round (src/models/*.cpp, b11434)."""


_NO_ROPE_ARCHS: Final = frozenset(("jamba", "nemotron_h", "nemotron_h_moe", "kimi-linear", "kimi-k3", "glm5-next"))
"""Architectures without rotary positions (``llama_model_rope_type``, src/llama-model.cpp, b11434)."""


_NORMED_WEIGHTS_ARCHS: Final = frozenset(
    (
        "arctic", "dbrx", "ernie4_5-moe", "gemma4", "granite", "granitehybrid", "granitemoe", "granite_swa", "grok",
        "grovemoe", "hunyuan-moe", "kimi-linear", "lfm2moe", "llama", "maple", "mellum", "mimo2", "minimax-01",
        "minimax-m2", "mistral3", "phimoe", "qwen35moe", "qwen3moe", "qwen3next", "qwen3vlmoe", "qwen4exp", "rnd1",
        "smallthinker",
    )
)  # fmt: skip
"""Architectures that always make expert weights sum to one; others do as ``expert_weights_norm`` says
(``build_moe_ffn`` calls in src/models/*.cpp, b11434)."""


_SQRT_SOFTPLUS: Final = 4
"""``LLAMA_EXPERT_GATING_FUNC_TYPE_SQRT_SOFTPLUS`` (src/llama-hparams.h, b11434)."""


def _k_rotation(head: int) -> int:
    """Bytes of the rotation matrix of a quantised K cache: the largest power of two that divides the head, squared
    (src/llama-kv-cache.cpp:340-348, b11434)."""
    return 4 * (head & -head) ** 2


class GraphModel:
    """Blocks of a model, with equal ones recognised."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.blocks = tuple(Block(layer, {}, {}, {}) for layer in model.layers)
        self.outside: dict[str, int] = {}
        for tensor in model.tensors:
            if tensor.layer is None:
                self.outside[tensor.name] = tensor.n_bytes
                continue
            name = tensor.name.split(".", 2)[2].removesuffix(".weight")
            self.blocks[tensor.layer].shapes[name] = tensor.shape
            self.blocks[tensor.layer].sizes[name] = tensor.n_bytes
            self.blocks[tensor.layer].types[name] = tensor.type
        known: dict[object, int] = {}
        self.kinds = tuple(
            known.setdefault((tuple(b.shapes.items()), b.layer.kind, b.layer.window, b.layer.n_expert_used), i)
            for i, b in enumerate(self.blocks)
        )
        self.scaled_weights = dict(model.metadata).get(f"{model.arch}.expert_weights_scale") not in (None, 0.0, 1.0)
        flag = dict(model.metadata).get(f"{model.arch}.expert_weights_norm", False)
        self.normed_weights = bool(flag) or model.arch in _NORMED_WEIGHTS_ARCHS
        self.n_top_k = self._number("attention.indexer.top_k")
        self.n_groups = self._number("expert_group_count")
        self.lookup_width = self._lookup_width()
        indexed = any(b.layer.indexer_k and b.layer.kind is AttentionKind.MLA for b in self.blocks)
        self.leafy = tuple(
            ("indexer.q_proj" in b.shapes or "indexer.attn_q_b" in b.shapes)
            or (indexed and b.layer.kind is AttentionKind.MLA)
            for b in self.blocks
        )
        """Blocks with leaves of zeros that they write into masks."""
        self.sparse = indexed * sum(b.layer.kind is AttentionKind.MLA and not b.layer.nextn for b in self.blocks)
        pooled = [b.layer for b in self.blocks if "indexer.q_proj" in b.shapes]
        ratios = [layer.compress_ratio for layer in pooled if layer.compress_ratio]
        self.ratios = tuple(
            sorted({b.layer.compress_ratio for b in self.blocks if b.layer.kind is AttentionKind.COMPRESSED} - {0})
        )
        self.pool = ratios[0] if ratios else _POOL * bool(pooled)
        self.hyper = max(self._number("hyper_connection.count"), 1)
        self.heads = {b.layer.window: b.layer.head_k for b in self.blocks if b.layer.n_embd_k}
        self.windows = tuple(sorted({b.layer.window for b in self.blocks if not b.layer.nextn}))

    def _lookup_width(self) -> int:
        """Elements per token gathered from per-layer or n-gram tables on the host; 0 without such tables."""
        table = next((t for t in self.model.tensors if t.layer is None and t.role is Role.LOOKUP), None)
        gathered = next((b.shapes["ple_key"][0] for b in self.blocks if "ple_key" in b.shapes), None)
        return gathered or (table.shape[0] if table else 0)

    def _number(self, key: str) -> int:
        """A whole number of the header, 0 without it."""
        value = dict(self.model.metadata).get(f"{self.model.arch}.{key}")
        return value if isinstance(value, int) else 0

    def shortened(self, places: Sequence[tuple[int, Place]], *, staged: bool) -> tuple[tuple[int, Place], ...]:
        """Blocks that matter: memory repeats after the second time that two kinds of blocks meet.

        Args:
            staged: host weights are copied to a device, so blocks whose host weights differ in size are not alike.
        """
        alike: dict[object, int] = {}
        seen: dict[object, int] = {}
        kept: list[tuple[int, Place]] = []
        before: object = None
        for order, (i, place) in enumerate(places):
            sizes = self._host_sizes(i, place) if staged else ()
            step = (self.kinds[i], place, sizes)
            seen[before, step] = seen.get((before, step), 0) + 1
            if seen[before, step] <= 2 or order >= len(places) - 2:
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
        x = self._enter(env)
        last_of = {place.device: order for order, (i, place) in enumerate(plan.steps) if self.leafy[i]}
        left_out = dict(plan.zeros)
        for order, (i, place) in enumerate(plan.steps):
            block = self.blocks[i]
            env.enter(block, place)
            env.spare_zeros = left_out.get(place.device, 0) if last_of.get(place.device) == order else 0
            narrow = order == len(plan.steps) - 1 and "hc_ffn_fn" not in block.shapes
            x = block_steps(env, block, x, last=narrow)
        self._logits(env, x, plan)
        return replay(env.tape, plan.devices, cuda=plan.cuda, copies=plan.copies)

    def _enter(self, env: Env) -> Node:
        """Rows of the embedding, and the branch for mixed token and embedding rows.

        ``build_inp_embd`` (src/llama-graph.cpp, b11434): that branch never runs, but is allocated; its copy of the
        embedding input, which nobody reads, is never freed.
        """
        rows, tape = 4 * env.n_embd * env.n, env.tape
        table = tape.stored("weights", 0, HOST, weight=True)
        x = tape.op("embedding rows", rows, tape.leaf("inputs", 4 * env.n), key=(env.n_embd, env.n), weight=table)
        tape.view(tape.leaf("embedding rows", rows))
        mixed = self.model.arch not in _NO_MIXED_ARCHS
        second = tape.op("embedding rows", rows, tape.leaf("inputs", 4 * env.n), weight=table) if mixed else None
        if self.lookup_width:
            env.lookup = tape.op("lookup rows", 4 * self.lookup_width * env.n, weight=table)
        if second:
            target = tape.op("unused input branch", rows, tape.leaf("embedding rows", rows))
            tape.write(target, second, tape.leaf("inputs", 8 * env.n))
        tape.expand()
        return matrix(env, env.hyper * env.n_embd, x) if env.hyper > 1 else x

    def _logits(self, env: Env, x: Node, plan: Plan) -> None:
        """The last norm, or the last mix of parallel streams, and the multiply with the output matrix."""
        tape = env.tape
        head = tape.stored("weights", self._head_bytes(), plan.head, weight=True)
        small = tape.stored("weights", 4 * env.n_embd, plan.output, weight=True)
        if env.hyper == 1:
            scaled = inplace(env, x)
            row = tape.op(x.label, x.size, scaled, key=x.key, inplace=True, weight=small, batch=env.n)
        else:
            row = last_row(env, self.blocks[plan.steps[-1][0]], x, small)
        tape.op("logits", 4 * self.model.n_vocab * env.n, row, weight=head, batch=env.n)

    def _head_bytes(self) -> int:
        return self.outside.get("output.weight") or self.outside.get("token_embd.weight", 0)

    def masks(self, shape: Shape, settings: Settings) -> dict[str, int]:
        """Bytes of the attention masks, by name (``build_attn_inp_kq_mask``, src/llama-graph.cpp, b11434)."""
        width = 2 if shape.flash_attn else 4
        return {
            f"mask window {window}" if window else "mask": width * cells * shape.n_tokens
            for window, cells in self._cells(shape, settings).items()
        }

    def _cells(self, shape: Shape, settings: Settings) -> dict[int, int]:
        return {window: Cache("", window=window).cells(shape, settings) for window in self.windows}

    def _indexed(self, shape: Shape, cells: Mapping[int, int], entries: Mapping[int, int]) -> int:
        """Columns of the indexer's mask: cells, pools of cells, or compressed entries."""
        if self.pool:
            return -(-cells[0] * shape.n_stream // self.pool)
        return cells[0] if self.sparse else entries.get(CSA_RATIO, 0)

    def _env(self, shape: Shape, settings: Settings, plan: Plan) -> Env:
        tape, n = Tape(plan.offload), shape.n_tokens
        cells = self._cells(shape, settings)
        v_rows = 1 if shape.flash_attn else max(b.layer.n_embd_v for b in self.blocks)
        inputs = {
            window: Inputs(
                tape.leaf("inputs", 8 * n),
                tape.leaf("inputs", 8 * n * v_rows),
                tape.leaf(name, size),
                (tape.leaf("inputs", _k_rotation(self.heads.get(window, 64))), tape.leaf("inputs", _V_ROTATION)),
            )
            for window, (name, size) in zip(cells, self.masks(shape, settings).items(), strict=True)
        }
        width = 2 if shape.flash_attn else 4
        entries = {r: compressed_cells(shape.n_ctx_seq, r) for r in self.ratios}
        block, place = self.blocks[0], Place(HOST, HOST)
        return Env(
            tape=tape, n=n, n_seq=shape.n_seq, n_copies=1 + shape.n_rollback, n_embd=self.model.n_embd,
            n_stream=shape.n_stream, n_ctx_seq=shape.n_ctx_seq, n_outputs=shape.n_outputs,
            n_top_k=self.n_top_k, n_groups=self.n_groups, pool=self.pool, hyper=self.hyper,
            residual_first=self.model.arch in _RESIDUAL_FIRST_ARCHS, rope=self.model.arch not in _NO_ROPE_ARCHS,
            gate_steps=1 + (self._number("expert_gating_func") == _SQRT_SOFTPLUS),
            normed_weights=self.normed_weights, scaled_weights=self.scaled_weights,
            positions=tape.leaf("inputs", 4 * n), outputs=tape.leaf("inputs", 4 * shape.n_outputs),
            inputs=inputs, cells={window: count * shape.n_stream for window, count in cells.items()},
            k_type=settings.type_k, v_type=settings.type_v, flash_attn=shape.flash_attn,
            end_on_host=plan.forced and not settings.kv_offload,
            cuda=plan.cuda, pinned_norms=plan.forced and (plan.all_on_devices or n < _PINNED_BELOW),
            rotated_k=is_quantised(settings.type_k), rotated_v=is_quantised(settings.type_v),
            entries={r: tape.leaf(f"mask compressed 1/{r}", width * found * n) for r, found in entries.items()},
            indexer_mask=tape.leaf("mask indexer", 2 * n * self._indexed(shape, cells, entries)),
            block=block, place=place,
        )  # fmt: skip
