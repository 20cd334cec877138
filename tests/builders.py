"""Small models, machines and settings, built by hand; every default can be replaced by keyword."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.facts.machine import Backend, Gpu, Machine, Os, Ram
from planner.facts.model import AttentionKind, Layer, Model, Role, Tensor
from planner.plans.settings import LoadMode, Settings
from planner.units import GIB


def make_layer(index: int, **changes: Any) -> Layer:
    """A GQA block: 4 heads of 64 over 2 KV heads, so 128 K and 128 V elements per token."""
    base = Layer(
        index=index, kind=AttentionKind.FULL, n_head=4, n_head_kv=2, head_k=64, head_v=64,
        n_embd_k=128, n_embd_v=128, n_ff=512, n_expert_used=2,
    )  # fmt: skip
    return replace(base, **changes)


def block_tensors(index: int, n_expert: int = 8) -> tuple[Tensor, ...]:
    """Tensors of one MoE block: width 256, expert width 128, f16."""

    def tensor(name: str, shape: tuple[int, ...], role: Role) -> Tensor:
        n_bytes = 2
        for n in shape:
            n_bytes *= n
        return Tensor(f"blk.{index}.{name}", "F16", shape, n_bytes, index, role)

    return (
        tensor("attn_q.weight", (256, 256), Role.ATTENTION),
        tensor("attn_k.weight", (256, 128), Role.ATTENTION),
        tensor("attn_v.weight", (256, 128), Role.ATTENTION),
        tensor("attn_output.weight", (256, 256), Role.ATTENTION),
        tensor("ffn_gate_inp.weight", (256, n_expert), Role.ROUTER),
        tensor("ffn_gate_exps.weight", (256, 128, n_expert), Role.EXPERT),
        tensor("ffn_up_exps.weight", (256, 128, n_expert), Role.EXPERT),
        tensor("ffn_down_exps.weight", (128, 256, n_expert), Role.EXPERT),
    )


def make_model(
    n_layer: int = 4, *, layers: tuple[Layer, ...] | None = None, tied: bool = False, **changes: Any
) -> Model:
    """A qwen3moe-like model of ``n_layer`` equal blocks, 1,000 words, width 256."""
    layers = layers or tuple(make_layer(i) for i in range(n_layer))
    outside = [Tensor("token_embd.weight", "F16", (256, 1000), 512_000, None, Role.EMBEDDING)]
    outside += [] if tied else [Tensor("output.weight", "F16", (256, 1000), 512_000, None, Role.OUTPUT)]
    tensors = (*outside, *(t for layer in layers for t in block_tensors(layer.index)))
    base = Model(
        path="model.gguf", arch="qwen3moe", name="Hand made", n_layer=len(layers),
        n_layer_nextn=sum(layer.nextn for layer in layers), n_embd=256, n_vocab=1000, n_ctx_train=32768,
        n_expert=8, n_expert_used=2, n_ff_exp=128, layers=layers, tensors=tensors,
        file_bytes=sum(t.n_bytes for t in tensors), fingerprint="0" * 16, shards=("model.gguf",),
    )  # fmt: skip
    return replace(base, **{"shards": (changes.get("path", base.path),)} | changes)


def make_gpu(gpu_id: str = "CUDA0", **changes: Any) -> Gpu:
    """A 16 GiB CUDA card with 1 GiB in use."""
    base = Gpu(id=gpu_id, total_bytes=16 * GIB, backend=Backend.CUDA, used_bytes=GIB, free_bytes=15 * GIB)
    return replace(base, **changes)


def make_machine(*gpus: Gpu, **changes: Any) -> Machine:
    """Linux, 64 GiB of RAM of which 60 GiB are available."""
    return replace(Machine(Os.LINUX, Ram(64 * GIB, 60 * GIB), gpus=gpus), **changes)


def make_settings(**changes: Any) -> Settings:
    """Everything on CUDA0, 4,096 tokens of context, load mode none, no prompt cache."""
    base = Settings(
        n_ctx=4096, n_gpu_layers=99, devices=("CUDA0",), load_mode=LoadMode.NONE, cache_ram_mib=0, ctx_checkpoints=0
    )
    return replace(base, **changes)
