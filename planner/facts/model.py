"""The model as its GGUF describes it. Names are llama.cpp's own where it has one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from planner.facts.routing import RoutingStats


class Role(StrEnum):
    """What a tensor is for; every tensor has exactly one."""

    EMBEDDING = "embedding"
    """``token_embd`` and its norms: read row by row, always in host memory."""
    LOOKUP = "lookup"
    """Per-layer embeddings and n-gram tables: gathered by row, host memory, not experts."""
    OUTPUT = "output"
    """``output.weight`` (and bias): the logits multiply."""
    NORM = "norm"
    ATTENTION = "attention"
    RECURRENT = "recurrent"
    """State-space, gated-delta and short-convolution tensors."""
    ROUTER = "router"
    EXPERT = "expert"
    """Routed experts: last dimension is ``n_expert``."""
    SHARED_EXPERT = "shared_expert"
    DENSE_FFN = "dense_ffn"
    NEXTN = "nextn"
    """Multi-token-prediction head tensors (``blk.N.nextn.*``)."""
    OTHER = "other"


class AttentionKind(StrEnum):
    """What a block keeps between tokens."""

    FULL = "full"
    SWA = "swa"
    CHUNKED = "chunked"
    MLA = "mla"
    RECURRENT = "recurrent"
    COMPRESSED = "compressed"
    """DeepSeek-V4 style: a sliding raw cache beside compressed ones."""
    SHARED = "shared"
    """Attends to another layer's cache and owns none."""
    NONE = "none"
    """No attention and no state (a pure FFN block)."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the file.

    Args:
        type: ggml type name, e.g. ``Q4_K``.
        shape: ne0 first, as in the file.
        layer: block index, or None outside the blocks.
        n_bytes: data bytes in the file (row size times rows).
    """

    name: str
    type: str
    shape: tuple[int, ...]
    n_bytes: int
    layer: int | None
    role: Role


@dataclass(frozen=True, slots=True)
class Layer:
    """One block: what it caches and how it computes. Element counts, not bytes.

    Args:
        n_embd_k: K elements cached per token and layer (0: none).
        n_embd_v: V elements cached per token and layer (0: none, as in MLA).
        window: ``n_swa`` for SWA and CHUNKED layers, else 0.
        indexer_k, indexer_v: elements of a sparse-attention indexer's own cache per token.
        state_r, state_s: recurrent state elements per sequence (f32): convolution and scan state.
        compress_ratio: tokens per compressed entry (COMPRESSED layers) or per pool of an indexer (0: none).
        nextn: True for a multi-token-prediction block, skipped unless MTP runs.
        nextn_cached: such a block whose cache the main context allocates even without MTP.
    """

    index: int
    kind: AttentionKind
    n_head: int
    n_head_kv: int
    head_k: int
    head_v: int
    n_embd_k: int
    n_embd_v: int
    window: int = 0
    indexer_k: int = 0
    indexer_v: int = 0
    state_r: int = 0
    state_s: int = 0
    compress_ratio: int = 0
    n_ff: int = 0
    n_expert_used: int = 0
    nextn: bool = False
    nextn_cached: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """Everything a planner needs of one GGUF (all shards together).

    Args:
        n_layer: ``block_count``, multi-token-prediction blocks included.
        n_layer_nextn: how many of the last blocks are multi-token-prediction blocks.
        n_ff_exp: width of one routed expert (0 for a dense model).
        path: the file to give to ``-m`` (the first shard).
        file_bytes: sum over all shards.
        fingerprint: hex digest over headers and sizes of all shards; names and bytes decide, not the path.
        attention_known: False where cache rules of this architecture are assumed, not mirrored.
        notes: what was assumed or looks odd, one sentence each.
        routing: which experts it was seen to use; None without a recording.
    """

    path: str
    arch: str
    name: str
    n_layer: int
    n_layer_nextn: int
    n_embd: int
    n_vocab: int
    n_ctx_train: int
    n_expert: int
    n_expert_used: int
    n_ff_exp: int
    layers: tuple[Layer, ...]
    tensors: tuple[Tensor, ...]
    file_bytes: int
    fingerprint: str
    shards: tuple[str, ...]
    attention_known: bool = True
    metadata: tuple[tuple[str, str | int | float | bool], ...] = ()
    notes: tuple[str, ...] = ()
    routing: RoutingStats | None = None

    @property
    def is_moe(self) -> bool:
        """True when the file holds routed experts."""
        return self.expert_bytes > 0

    @property
    def expert_bytes(self) -> int:
        return sum(t.n_bytes for t in self.tensors if t.role is Role.EXPERT)

    @property
    def expert_slice_bytes(self) -> int | None:
        """The largest matrix of one expert: the piece in which experts are read; None without experts."""
        experts = (t for t in self.tensors if t.role is Role.EXPERT and len(t.shape) == 3)
        return max((t.n_bytes // t.shape[-1] for t in experts), default=None)

    @property
    def has_output(self) -> bool:
        """False for a tied head: ``token_embd`` then serves as ``output``, too."""
        return any(t.name == "output.weight" for t in self.tensors)
