"""Metadata keys to numbers: scalars, per-layer arrays and llama.cpp's defaults.

Follows ``llama_model_base::load_hparams`` in src/llama-model.cpp and ``get_key_or_arr`` in
src/llama-model-loader.cpp, b11434.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from planner.errors import ModelFileError
from planner.gguf.architectures import RECURRENT
from planner.gguf.reader import Array, Value

MAX_LAYERS: Final = 512
"""``LLAMA_MAX_LAYERS``, src/llama-hparams.h."""
_U32: Final = (1 << 32) - 1


class Keys:
    """Typed access to ``<arch>.<name>`` keys.

    Every method raises ``ModelFileError`` if the value is of the wrong kind, or required and missing.
    """

    def __init__(self, metadata: Mapping[str, Value], arch: str, subject: str) -> None:
        self._metadata, self.arch, self.subject = metadata, arch, subject

    def optional(self, name: str) -> int | None:
        """A number from 0 to 2^32 - 1; None if the file has no such key, or an array there."""
        value = self._metadata.get(f"{self.arch}.{name}")
        return None if value is None or isinstance(value, Array) else self._u32(value, name)

    def uint(self, name: str, default: int) -> int:
        value = self.optional(name)
        return default if value is None else value

    def required(self, name: str) -> int:
        value = self.optional(name)
        if value is None:
            raise self._error(f"a number as {self.arch}.{name}", "none")
        return value

    def per_layer(self, name: str, n: int) -> tuple[int, ...] | None:
        """``n`` numbers, from an array of just that length or from one number; None if there is no key."""
        value = self._metadata.get(f"{self.arch}.{name}")
        if value is None:
            return None
        if not isinstance(value, Array):
            return (self._u32(value, name),) * n
        if value.length != n:
            raise self._error(f"{n} entries in {self.arch}.{name}, one per block", f"{value.length:,}")
        return self._entries(value, name)

    def array(self, name: str) -> tuple[int, ...] | None:
        """An array of at most 512 numbers; None if there is no key, or one number there."""
        value = self._metadata.get(f"{self.arch}.{name}")
        if not isinstance(value, Array):
            return None
        if value.length > MAX_LAYERS:
            raise self._error(f"at most {MAX_LAYERS} entries in {self.arch}.{name}", f"{value.length:,}")
        return self._entries(value, name)

    def _entries(self, array: Array, name: str) -> tuple[int, ...]:
        if array.values is None:
            raise self._error(f"numbers in {self.arch}.{name}", "strings")
        return tuple(int(v) if isinstance(v, bool) else self._u32(v, name) for v in array.values)

    def _u32(self, value: Value, name: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _U32:
            found = str(value) if isinstance(value, int | float) else "another type"
            raise self._error(f"a number from 0 to 2^32 - 1 as {self.arch}.{name}", found)
        return value

    def _error(self, expected: str, found: str) -> ModelFileError:
        return ModelFileError(self.subject, expected=expected, found=found)


@dataclass(frozen=True, slots=True)
class Hparams:
    """Numbers that hold for every architecture. Tuples have one entry per block, nextn blocks included.

    Args:
        n_layer_all: blocks with multi-token-prediction (nextn) blocks, which come last.
        head_k, head_v: elements per head of blocks without a window.
        head_k_swa, head_v_swa: the same of blocks with one.
        mla: the file holds absorbed latents: K alone is cached.
    """

    n_layer_all: int
    n_layer_nextn: int
    n_embd: int
    n_ctx_train: int
    n_expert: int
    n_expert_used: tuple[int, ...]
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    n_ff: tuple[int, ...]
    head_k: int
    head_v: int
    head_k_swa: int
    head_v_swa: int
    mla: bool

    @property
    def n_layer(self) -> int:
        """Blocks of the main model."""
        return self.n_layer_all - self.n_layer_nextn


def load(keys: Keys, *, nextn_present: bool) -> Hparams:
    """Read the general hyperparameters.

    Args:
        nextn_present: the file holds ``nextn`` tensors (deepseek4 counts its blocks only then,
            src/models/deepseek4.cpp).

    Raises:
        ModelFileError: a key is missing or wrong.
    """
    n = keys.required("block_count")
    if not 1 <= n <= MAX_LAYERS:
        raise ModelFileError(keys.subject, expected=f"1 to {MAX_LAYERS} blocks", found=f"{n:,}")
    nextn = keys.uint("nextn_predict_layers", 0)
    if nextn > n:
        raise ModelFileError(keys.subject, expected=f"at most {n} nextn blocks", found=f"{nextn:,}")
    if keys.arch == "deepseek4" and not nextn_present:
        nextn = 0
    n_head = keys.per_layer("attention.head_count", n)
    if n_head is None and keys.arch not in RECURRENT:
        raise ModelFileError(keys.subject, expected=f"{keys.arch}.attention.head_count", found="no such key")
    n_head = n_head or (0,) * n
    n_expert, used = _experts(keys, n)
    n_embd = keys.required("embedding_length")
    head = n_embd // n_head[0] if n_head[0] else 0
    head_k = keys.uint("attention.key_length", head) if n_head[0] else 0
    head_v = keys.uint("attention.value_length", head) if n_head[0] else 0
    hp = Hparams(
        n_layer_all=n,
        n_layer_nextn=nextn,
        n_embd=n_embd,
        n_ctx_train=keys.required("context_length"),
        n_expert=n_expert,
        n_expert_used=used,
        n_head=n_head,
        n_head_kv=keys.per_layer("attention.head_count_kv", n) or n_head,
        n_ff=keys.per_layer("feed_forward_length", n) or (0,) * n,
        head_k=head_k,
        head_v=head_v,
        head_k_swa=keys.uint("attention.key_length_swa", head_k),
        head_v_swa=keys.uint("attention.value_length_swa", head_v),
        mla=bool(keys.uint("attention.key_length_mla", 0) and keys.uint("attention.value_length_mla", 0)),
    )
    return _expanded(keys, hp)


def _expanded(keys: Keys, hp: Hparams) -> Hparams:
    """Blocks that run without being stored: src/models/nanbeige.cpp and src/models/granite-switch.cpp."""
    if keys.arch == "nanbeige":
        loops = keys.uint("num_loops", 1)
        if not 1 <= loops * hp.n_layer_all <= MAX_LAYERS:
            raise ModelFileError(keys.subject, expected=f"1 to {MAX_LAYERS} blocks", found=f"{loops} loops")
        return replace(
            hp,
            n_layer_all=hp.n_layer_all * loops,
            n_expert_used=hp.n_expert_used * loops,
            n_head=hp.n_head * loops,
            n_head_kv=hp.n_head_kv * loops,
            n_ff=hp.n_ff * loops,
        )
    if keys.arch == "graniteswitch":
        return replace(
            hp,
            n_layer_all=hp.n_layer_all + 1,
            n_expert_used=(*hp.n_expert_used, 0),
            n_head=(*hp.n_head, 1),
            n_head_kv=(*hp.n_head_kv, 1),
            n_ff=(*hp.n_ff, 0),
        )
    return hp


def _experts(keys: Keys, n: int) -> tuple[int, tuple[int, ...]]:
    n_expert = keys.uint("expert_count", 0)
    used = keys.per_layer("expert_used_count", n) or (0,) * n
    if max(used) > n_expert or (n_expert and not max(used)):
        raise ModelFileError(
            keys.subject,
            expected=f"1 to {n_expert} of {n_expert} experts used" if n_expert else "no used experts without experts",
            found=f"{max(used):,} used",
        )
    return n_expert, used
