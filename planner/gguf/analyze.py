"""The analyzer's door: a path or URL in, a ``Model`` out."""

from __future__ import annotations

import hashlib
import re
from math import isfinite
from typing import Final

from planner.errors import ModelFileError
from planner.facts.model import AttentionKind, Layer, Model, Role, Tensor
from planner.gguf.architectures import KNOWN
from planner.gguf.caches import build_layers
from planner.gguf.hyperparams import Hparams, Keys, load
from planner.gguf.names import printable, quoted
from planner.gguf.reader import Array, Header
from planner.gguf.roles import is_single_expert, layer_of, named_expert, role_of
from planner.gguf.shards import ModelFiles, read_model
from planner.gguf.tensor_table import TensorInfo

_ARCH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOT_MODELS: Final = {
    "mmproj": "a vision or audio projector",
    "adapter": "an adapter (LoRA)",
    "imatrix": "an importance matrix",
    "vocab": "a vocabulary",
}
"""Values of ``general.type`` (gguf-py/gguf/constants.py, ``GGUFType``) that are no language model."""
_KEPT_KEYS: Final = ("general.", "tokenizer.ggml.model", "tokenizer.ggml.pre", "quantize.imatrix.")


def analyze(path: str) -> Model:
    """Read what a planner needs of one GGUF: a file, any shard of a split model, or an ``https://`` URL.

    Only headers are read; their limits (``reader``, ``cursor``) bound time and memory on any input.

    Raises:
        ModelFileError: no such file, not a GGUF, cut or damaged, a shard missing, or not a language model.
    """
    files = read_model(path)
    header = files.headers[0]
    arch = _architecture(header)
    keys = Keys(header.metadata, arch, header.subject)
    infos = files.tensors
    if not infos:
        raise ModelFileError(header.subject, expected="a model with tensors", found="none")
    hp = load(keys, nextn_present=any(".nextn." in t.name for t in infos))
    layers = build_layers(keys, hp)
    tensors = _tensors(infos, keys, hp, layers, header.subject)
    return Model(
        path=files.paths[0],
        arch=arch,
        name=_name(header),
        n_layer=hp.n_layer_all,
        n_layer_nextn=hp.n_layer_nextn,
        n_embd=hp.n_embd,
        n_vocab=_n_vocab(tensors, header, hp.n_embd),
        n_ctx_train=hp.n_ctx_train,
        n_expert=hp.n_expert,
        n_expert_used=max(hp.n_expert_used),
        n_ff_exp=_n_ff_exp(tensors),
        layers=layers,
        tensors=tensors,
        file_bytes=sum(h.file_bytes for h in files.headers),
        fingerprint=_fingerprint(files),
        shards=files.paths,
        attention_known=arch in KNOWN,
        metadata=_metadata(header, arch),
        notes=_notes(arch, hp, tensors),
    )


def _architecture(header: Header) -> str:
    kind = header.metadata.get("general.type", "model")
    arch = header.metadata.get("general.architecture")
    what = _NOT_MODELS.get(kind) if isinstance(kind, str) else None
    what = "a vision or audio projector" if arch == "clip" else what
    if what:
        raise ModelFileError(
            header.subject, expected="a language model", found=what, advice="name the model's own GGUF"
        )
    if not isinstance(arch, str) or not _ARCH.fullmatch(arch):
        found = quoted(arch) if isinstance(arch, str) else "none"
        raise ModelFileError(
            header.subject, expected="the name of an architecture as general.architecture", found=found
        )
    return arch


def _name(header: Header) -> str:
    value = header.metadata.get("general.name")
    if not isinstance(value, str):
        return ""
    if any(not c.isprintable() and not c.isspace() for c in value):
        found = printable(value)
        raise ModelFileError(header.subject, expected="a general.name without control characters", found=f"'{found}'")
    return printable(" ".join(value.split()))


def _tensors(
    infos: tuple[TensorInfo, ...], keys: Keys, hp: Hparams, layers: tuple[Layer, ...], subject: str
) -> tuple[Tensor, ...]:
    group = keys.uint("experts_per_group", 0)
    n_chunk = hp.n_expert // group if group else 0  # src/models/grovemoe.cpp

    def kind_of(il: int) -> AttentionKind:
        return layers[il].kind

    tensors = []
    for info in infos:
        layer = layer_of(info.name)
        if layer is not None and layer >= len(layers):
            raise ModelFileError(
                subject, expected=f"tensors of {len(layers)} blocks (block_count)", found=f"{info.name}"
            )
        if is_single_expert(info.name):
            raise ModelFileError(
                subject,
                expected="the experts of a block in one tensor",
                found=f"{info.name}, one tensor per expert, which llama.cpp no longer loads",
                advice="convert the model again with a current llama.cpp",
            )
        role = role_of(info.name, info.shape, n_expert=hp.n_expert, n_chunk_expert=n_chunk, kind_of=kind_of)
        tensors.append(Tensor(info.name, info.type, info.shape, info.n_bytes, layer, role))
    return tuple(tensors)


def _n_vocab(tensors: tuple[Tensor, ...], header: Header, n_embd: int) -> int:
    """Words of the vocabulary. Raises ModelFileError where their rows are not as wide as the model says it is."""
    for tensor in tensors:
        if tensor.name == "token_embd.weight" and len(tensor.shape) > 1:
            if tensor.shape[0] != n_embd:
                expected = f"token_embd.weight with rows of embedding_length ({n_embd:,})"
                raise ModelFileError(header.subject, expected=expected, found=f"rows of {tensor.shape[0]:,}")
            return tensor.shape[1]
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    return tokens.length if isinstance(tokens, Array) else 0


def _n_ff_exp(tensors: tuple[Tensor, ...]) -> int:
    """ne0 of ``ffn_down_exps``: right whichever key, or per-layer array, carries it."""
    down = (t for t in tensors if t.role is Role.EXPERT and t.name.endswith("ffn_down_exps.weight"))
    return max((t.shape[0] for t in down), default=0)


def _fingerprint(files: ModelFiles) -> str:
    text = "\n".join(f"{h.digest} {h.file_bytes}" for h in files.headers)
    return hashlib.sha256(text.encode()).hexdigest()


def _metadata(header: Header, arch: str) -> tuple[tuple[str, str | int | float | bool], ...]:
    kept: list[tuple[str, str | int | float | bool]] = []
    for key, value in header.metadata.items():
        if not key.startswith((*_KEPT_KEYS, arch + ".")):
            continue
        if isinstance(value, str):
            kept.append((key, printable(value)))
        elif isinstance(value, int | float) and isfinite(value):
            kept.append((key, value))
    return tuple(kept)


def _notes(arch: str, hp: Hparams, tensors: tuple[Tensor, ...]) -> tuple[str, ...]:
    notes = []
    if arch not in KNOWN:
        notes.append(
            f"Architecture {arch} is unknown here: its cache is computed from the general attention keys "
            "and may differ."
        )
    if not any(t.role is Role.EXPERT for t in tensors):
        notes.append(
            "The file holds no routed experts: this is a dense model, planned by -ngl and context alone."
            if not hp.n_expert
            else f"The file names {hp.n_expert} experts but holds no expert tensors: it is planned as a dense model."
        )
    odd = [t.name for t in tensors if named_expert(t.name) and t.role is not Role.EXPERT]
    if odd:
        notes.append(
            f"{len(odd)} tensors are named like experts but their last dimension is not the number of experts: "
            f"{odd[0]} is the first."
        )
    return tuple(notes)
