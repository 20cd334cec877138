"""Which blocks slide, which recur, and what recurrence keeps: per-block rules of llama.cpp b11434."""

from __future__ import annotations

from typing import NamedTuple

from planner.errors import ModelFileError
from planner.gguf.architectures import (
    BOTH,
    DELTA_ATTENTION,
    FULL_ATTENTION_INTERVAL,
    KNOWN,
    ONE_FUNCTION_PER_BLOCK,
    RECURRENT,
    SHORT_CONV,
    WINDOWS,
    WKV,
    ZERO_KV_RECURRENT,
    Window,
)
from planner.gguf.hyperparams import Hparams, Keys


class Sliding(NamedTuple):
    """Window in tokens (0: none), and for each block whether it slides."""

    n_swa: int
    chunked: bool
    blocks: tuple[bool, ...]


def sliding(keys: Keys, hp: Hparams) -> Sliding:
    """Sliding windows, as ``load_swa_pattern`` in src/llama-model.cpp and src/models/*.cpp set them.

    A file of an unknown architecture slides where it carries both a window and a pattern.

    Raises:
        ModelFileError: the architecture takes the pattern from the file and there is none.
    """
    nothing = Sliding(0, False, (False,) * hp.n_layer_all)
    rule = WINDOWS.get(keys.arch)
    stored = keys.optional("attention.sliding_window")
    if rule is None:
        if keys.arch in KNOWN:
            return nothing
        rule = Window(keys.uint("attention.sliding_window_pattern", 1))
    if rule.only_layers not in (None, hp.n_layer):
        return nothing
    window = rule.default if stored is None else stored
    if not window:
        return nothing
    return Sliding(rule.forced or window, rule.chunked, _pattern(rule, keys, hp))


def _pattern(rule: Window, keys: Keys, hp: Hparams) -> tuple[bool, ...]:
    name = "attention.sliding_window_pattern"
    stored = keys.array(name) if rule.reads_pattern else None
    if stored is not None:
        return tuple(map(bool, stored[: hp.n_layer_all])) + (False,) * (hp.n_layer_all - len(stored))
    if rule.period is None:
        raise ModelFileError(keys.subject, expected=f"an array as {keys.arch}.{name}", found="none")
    period = keys.uint(name, rule.period) if rule.reads_pattern else rule.period
    return tuple(il < hp.n_layer and _slides(il, period, rule.dense_first) for il in range(hp.n_layer_all))


def _slides(il: int, period: int, dense_first: bool) -> bool:
    """``llama_hparams::set_swa_pattern``, src/llama-hparams.cpp."""
    if period == 0:
        return True
    return il % period != 0 if dense_first else il % period < period - 1


def recurrent_blocks(keys: Keys, hp: Hparams) -> tuple[bool, ...]:
    """Blocks with recurrent state; multi-token-prediction blocks have none."""
    n, trunk = hp.n_layer_all, range(hp.n_layer)
    found: tuple[bool, ...] = (False,) * n
    if keys.arch in RECURRENT | BOTH:
        found = (True,) * n
    elif keys.arch in ZERO_KV_RECURRENT:
        single = keys.arch in ONE_FUNCTION_PER_BLOCK
        found = tuple(hp.n_head_kv[il] == 0 and not (single and hp.n_ff[il]) for il in range(n))
    elif keys.arch in FULL_ATTENTION_INTERVAL:
        stored = keys.per_layer("attention.recurrent_layers", n)
        interval = keys.uint("full_attention_interval", FULL_ATTENTION_INTERVAL[keys.arch])
        if interval == 0:
            raise ModelFileError(keys.subject, expected="a full_attention_interval above 0", found="0")
        found = tuple(map(bool, stored)) if stored else tuple((il + 1) % interval != 0 for il in range(n))
    return tuple(found[il] and il in trunk for il in range(n))


def state_sizes(keys: Keys, hp: Hparams) -> tuple[int, int]:
    """(convolution state, scan state) of one recurrent block, f32 elements per sequence.

    ``llama_hparams::n_embd_r`` and ``n_embd_s``, src/llama-hparams.cpp.
    """

    def loaded(archs: frozenset[str], key: str) -> int:
        return keys.uint(key, 0) if keys.arch in archs or keys.arch not in KNOWN else 0

    conv, inner = keys.uint("ssm.conv_kernel", 0), keys.uint("ssm.inner_size", 0)
    state, groups = keys.uint("ssm.state_size", 0), keys.uint("ssm.group_count", 0)
    if wkv := loaded(WKV, "wkv.head_size"):
        return keys.uint("token_shift_count", 2) * hp.n_embd, hp.n_embd * wkv
    if cache := loaded(SHORT_CONV, "shortconv.l_cache"):
        return hp.n_embd * (cache - 1), 0
    if kda := loaded(DELTA_ATTENTION, "kda.head_dim"):
        return 3 * (conv - 1 if conv else 3) * hp.n_head[0] * kda, kda * kda * hp.n_head[0]
    n_conv = max(conv - 1, 0) * (inner + 2 * groups * state)
    if keys.arch == "minimax-01":
        return n_conv, hp.head_k * hp.head_k * hp.n_head[0]
    return n_conv, state * inner


def lookup_state(keys: Keys, hp: Hparams) -> tuple[frozenset[int], int]:
    """(blocks, f32 elements per sequence) of the n-gram convolution history.

    ``llama_hparams::ple_conv_state``, src/llama-hparams.cpp.
    """
    blocks = frozenset((keys.array("ple.layers") or ()) if keys.arch == "qwen4exp" else ())
    if not blocks:
        return blocks, 0
    kernel, ngram = keys.required("ple.conv_kernel"), keys.required("ple.ngram_size")
    return blocks, max(kernel - 1, 0) * ngram * keys.uint("hyper_connection.count", 0) * hp.n_embd
