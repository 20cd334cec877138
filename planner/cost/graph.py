"""The graph of one device, block by block, and how much memory ggml's allocator gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from planner.cost.blocks import Block, Env, Inputs, fresh, matrix, norm
from planner.cost.experts import experts_only
from planner.cost.kv_cache import CSA_RATIO, Cache
from planner.cost.kv_types import is_quantised
from planner.cost.mixers import attends
from planner.cost.residual import block_steps, tail_of
from planner.cost.shape import Shape
from planner.cost.sparse import compressed_cells
from planner.cost.tape import Node, Tape
from planner.facts.model import AttentionKind, Model, Role
from planner.plans.settings import Settings

ALIGNMENT: Final = 128
"""Of tensors in a CUDA buffer; other backends align to 32 or 64, which moves a peak by a few KiB."""

_POOL: Final = 4
"""Cells per pool of a pooling indexer whose file's ratio is not known: the published ratio."""

_ROTATION: Final = 4 * 64 * 64
"""Rotation matrix of a quantised cache, f32."""

_NO_MIXED_ARCHS: Final = frozenset(("cogvlm", "deepseek4", "granite-switch", "eagle3", "dflash", "gemma4-assistant"))
"""Architectures without a graph for token and embedding rows in one batch (``llm_arch_supports_mixed_batch``,
src/llama-arch.cpp, b11434)."""


class Part(Enum):
    """What of a block a device computes."""

    WHOLE = "whole"
    """All of it, experts of the host included if their weights are staged."""
    AWAY = "away"
    """All but the multiplies with routed experts, whose results come from elsewhere."""
    EXPERTS = "experts"
    """Only the multiplies with routed experts of another device's block."""
    COPY = "copy"
    """Nothing, but its own inputs are copied to the device that computes the block (host only)."""


@dataclass(frozen=True, slots=True)
class Step:
    """One block on one device; ``staged`` holds ``(tensor name, bytes)`` of host weights it copies in."""

    block: int
    part: Part = Part.WHOLE
    staged: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """Everything one device computes.

    Args:
        first: it holds block 0 and so receives the embedding rows.
        cuda: fusions and f16 copies of the CUDA (and HIP) backend.
        host: the graph's inputs are its own.
        handed: its first block follows one of another device, which also computes that block's first norm: a step
            without weights stays with the device before it (pass 2 of ``ggml_backend_sched_split_graph``).
        copies: how often inputs are kept (4 under pipeline parallelism).
        tail: block of the host right before the device's first: its last sums are computed here.
    """

    steps: tuple[Step, ...]
    first: bool
    has_output: bool
    cuda: bool
    host: bool = False
    handed: bool = False
    copies: int = 1
    tail: int | None = None


class GraphModel:
    """Blocks of a model, with equal ones recognised."""

    def __init__(self, model: Model) -> None:
        self.model = model
        shapes: list[dict[str, tuple[int, ...]]] = [{} for _ in model.layers]
        for tensor in model.tensors:
            if tensor.layer is not None:
                name = tensor.name.split(".", 2)[2].removesuffix(".weight")
                shapes[tensor.layer][name] = tensor.shape
        self.blocks = tuple(Block(layer, s) for layer, s in zip(model.layers, shapes, strict=True))
        known: dict[object, int] = {}
        self.kinds = tuple(
            known.setdefault((tuple(b.shapes.items()), b.layer.kind, b.layer.window, b.layer.n_expert_used), i)
            for i, b in enumerate(self.blocks)
        )
        self.n_top_k = self._number("attention.indexer.top_k")
        self.n_groups = self._number("expert_group_count")
        self.lookup_width = self._lookup_width()
        indexed = any(b.layer.indexer_k and b.layer.kind is AttentionKind.MLA for b in self.blocks)
        self.sparse = indexed * sum(b.layer.kind is AttentionKind.MLA and not b.layer.nextn for b in self.blocks)
        pooled = [b.layer for b in self.blocks if "indexer.q_proj" in b.shapes]
        ratios = [layer.compress_ratio for layer in pooled if layer.compress_ratio]
        self.ratios = tuple(
            sorted({b.layer.compress_ratio for b in self.blocks if b.layer.kind is AttentionKind.COMPRESSED} - {0})
        )
        self.pool = ratios[0] if ratios else _POOL * bool(pooled)
        self.hyper = max(self._number("hyper_connection.count"), 1)
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

    def shortened(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Steps that matter: memory repeats after the second time that two kinds of blocks meet."""
        seen: dict[tuple[object, ...], int] = {}
        kept, before = [], None
        for place, step in enumerate(steps):
            kind = (self.kinds[step.block], step.part, step.staged)
            meeting = (before, kind)
            seen[meeting] = seen.get(meeting, 0) + 1
            if seen[meeting] <= 2 or place >= len(steps) - 2:
                kept.append(Step(self.kinds[step.block], step.part, step.staged))
            before = kind
        return tuple(kept)

    def buffer(self, shape: Shape, settings: Settings, job: Job) -> dict[str, int]:
        """Bytes alive at the peak by label; they sum to the compute buffer of the device."""
        env = self._env(shape, settings, job)
        x = self._enter(env, job)
        copied: set[int] = set()
        normed = env.tape.foreign("activations", x.size, key=x.key) if job.handed and env.hyper == 1 else None
        for place, step in enumerate(job.steps):
            block, staged = self.blocks[step.block], dict(step.staged)
            window = block.layer.window
            if step.part is Part.COPY:
                if window not in copied and attends(block):
                    given = env.inputs[window]
                    env.tape.store(env.positions, given.k_indices, given.v_indices, given.mask)
                    env.tape.store(env.indexer_mask, *env.entries.values())
                    copied.add(window)
            elif step.part is Part.EXPERTS:
                experts_only(env, block, staged)
            else:
                last = job.has_output and place == len(job.steps) - 1
                env.handed = normed if place == 0 else None
                x = block_steps(env, block, x, staged, on_cpu=step.part is Part.AWAY, last=last)
        env.tape.store(*env.zeros, env.lookup)
        if job.has_output:
            env.n = shape.n_outputs
            self._logits(env, x)
        elif job.host:
            env.tape.store(x)
        return env.tape.replay(ALIGNMENT, job.copies)

    def _enter(self, env: Env, job: Job) -> Node:
        """What a device starts with: rows of another device, or of the embedding.

        ``build_inp_embd`` (src/llama-graph.cpp, b11434) also builds the branch for mixed token and embedding
        rows. It never runs, but is allocated: the copy of the embedding input on the device of block 0, which
        nobody reads, is never freed.
        """
        rows, tape = 4 * env.n_embd * env.n, env.tape
        mixed = self.model.arch not in _NO_MIXED_ARCHS
        lookup = 4 * self.lookup_width * env.n
        if not job.host:
            x = tape.foreign("activations", rows, key=(env.n_embd, env.n))
            if job.first and mixed and not lookup:
                copy = tape.op("unused input branch", rows, tape.foreign("inputs", rows))
                tape.view(copy, tape.foreign("inputs", rows), tape.foreign("inputs", 8 * env.n))
            elif job.tail is not None:
                x = tail_of(env, self.blocks[job.tail])
            env.lookup = tape.foreign("lookup rows", lookup)
            tape.store(*env.zeros, env.lookup)
            return matrix(env, env.hyper * env.n_embd, x) if env.hyper > 1 else x
        embedding, second = tape.foreign("embedding rows", rows), tape.foreign("embedding rows", rows * mixed)
        tape.hold(embedding, second, env.positions, env.outputs, env.indexer_mask, *env.entries.values())
        for given in env.inputs.values():
            tape.hold(given.k_indices, given.v_indices, given.mask)
        x = tape.op("embedding rows", rows, key=(env.n_embd, env.n))
        if mixed:
            branch = tape.op("embedding rows", rows)
            if job.first or lookup:
                tape.view(tape.op("unused input branch", rows, second), branch)
            else:
                tape.store(second, branch)
        if lookup:
            tape.store(tape.op("lookup rows", lookup))
        if not job.first:
            tape.store(x)
        return x

    def _logits(self, env: Env, x: Node) -> None:
        """The last norm, or the last mix of parallel streams, and the multiply with the output matrix.

        With parallel streams some tensors are kept to the end, for the holes they leave in llama.cpp's buffer:
        never under and at most 14 % over its figure on the two published models that have them.
        """
        size = 4 * self.model.n_vocab * env.n
        if env.hyper == 1:
            env.tape.op("logits", size, norm(env, x))
            return
        wide = fresh(env, x.size, x)
        product = fresh(env, x.size, x, matrix(env, env.hyper, env.tape.view(wide)))
        row = norm(env, matrix(env, env.n_embd, env.tape.view(product)))
        kept = (x,) if any("hc_ffn_up" in b.shapes for b in self.blocks) else ()
        env.tape.store(env.tape.op("logits", size, row), wide, product, *kept)

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

    def _env(self, shape: Shape, settings: Settings, job: Job) -> Env:
        tape, n = Tape(), shape.n_tokens
        quantised = is_quantised(settings.type_k), is_quantised(settings.type_v)
        cells = self._cells(shape, settings)
        v_rows = 1 if shape.flash_attn else max(b.layer.n_embd_v for b in self.blocks)
        inputs = {
            window: Inputs(
                tape.foreign("inputs", 8 * n),
                tape.foreign("inputs", 8 * n * v_rows),
                tape.foreign(name, size),
                (tape.foreign("inputs", _ROTATION), tape.foreign("inputs", _ROTATION)),
            )
            for window, (name, size) in zip(cells, self.masks(shape, settings).items(), strict=True)
        }
        sparse, width = self.sparse, 2 if shape.flash_attn else 4
        entries = {r: compressed_cells(shape.n_ctx_seq, r) for r in self.ratios}
        lowest = 4 * n * min(max(cells.values(), default=0), self.n_top_k)
        return Env(
            tape=tape, n=n, n_seq=shape.n_seq, n_embd=self.model.n_embd, n_stream=shape.n_stream,
            n_ctx_seq=shape.n_ctx_seq,
            n_top_k=self.n_top_k, n_groups=self.n_groups, pool=self.pool, hyper=self.hyper,
            lookup=tape.foreign("lookup rows", 0),
            positions=tape.foreign("inputs", 4 * n),
            outputs=tape.foreign("inputs", 4 * shape.n_outputs), n_outputs=shape.n_outputs,
            inputs=inputs, cells={window: count * shape.n_stream for window, count in cells.items()},
            flash_attn=shape.flash_attn, f16_copies=job.cuda and any(quantised), fused_sum=job.cuda,
            rotated_k=quantised[0], rotated_v=quantised[1],
            entries={r: tape.foreign(f"mask compressed 1/{r}", width * found * n) for r, found in entries.items()},
            indexer_mask=tape.foreign("mask indexer", 2 * n * self._indexed(shape, cells, entries)),
            zeros=[] if job.host else [tape.foreign("indexer top k", lowest) for _ in range(sparse)],
        )  # fmt: skip
