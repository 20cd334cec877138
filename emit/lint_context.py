"""Checks of context, batch and cache types."""

from __future__ import annotations

from collections.abc import Iterator

from emit.lint_case import QUANTISED_KV, Case, Check
from planner import units
from planner.facts.machine import Backend
from planner.facts.model import AttentionKind
from planner.plans.plan import Lint
from planner.plans.settings import FlashAttn, Tool

_DEFAULT_PAIRS = frozenset({("f16", "f16"), ("bf16", "bf16"), ("q8_0", "q8_0"), ("q4_0", "q4_0")})
"""Pairs a default CUDA build compiles (``GGML_CUDA_FA_QUANTS``, b11312)."""
_ANY_PAIR_SINCE = 11312
"""From here on CUDA attention takes any pair (ggml-cuda/fattn.cu:525-539)."""
_FEW_TOKENS = 16384


def ubatch_over_batch(case: Case) -> Iterator[Lint]:
    s = case.settings
    if s.n_ubatch > s.n_batch > 0:
        message = f"the ubatch is cut to the batch: {s.n_ubatch} runs as {s.n_batch}"
        yield Lint("ubatch-over-batch", case.typed("n_ubatch", "-ub"), message, f"-b {s.n_ubatch}")


def quantised_v_without_fa(case: Case) -> Iterator[Lint]:
    """src/llama-context.cpp:3835 (b11434) refuses to start."""
    s = case.settings
    if s.type_v in QUANTISED_KV and s.flash_attn is FlashAttn.OFF:
        flag = case.typed("type_v", "-ctv")
        yield Lint(
            "quantised-v-without-fa", flag, "a quantised V cache needs flash attention: it will not start", "-fa on"
        )


def kv_pair(case: Case) -> Iterator[Lint]:
    """K and V types that differ, or that the CUDA build holds no kernel for."""
    s = case.settings
    same = f"-ctk {s.type_k} -ctv {s.type_k}"
    flag = case.typed("type_v", "-ctv")
    kinds = {layer.kind for layer in case.model.layers}
    if s.type_k != s.type_v and kinds & {AttentionKind.MLA, AttentionKind.COMPRESSED}:
        yield Lint("kv-pair-refused", flag, "this attention needs equal K and V types: it will not start", same)
        return
    backends = {gpu.backend for gpu in case.gpus}
    if (s.type_k, s.type_v) in _DEFAULT_PAIRS or not backends & {Backend.CUDA, Backend.ROCM, None}:
        return
    engine = case.machine.engine
    listed = engine.kv_pairs_on_gpu if engine else ()
    pair = f"K {s.type_k} with V {s.type_v}"
    if f"{s.type_k}:{s.type_v}" in listed or (not listed and case.parsed.dialect.build >= _ANY_PAIR_SINCE):
        message = (
            f"unless it was built with all pairs, llama.cpp has no kernel of its own for {pair}: it converts to f16"
        )
        yield Lint("kv-pair-converted", flag, message, same)
    else:
        message = f"this build has no GPU kernel for {pair}: attention runs on the CPU"
        yield Lint("kv-pair-not-compiled", flag, message, same)


def kv_lossy(case: Case) -> Iterator[Lint]:
    s = case.settings
    found = [t for t in (s.type_k, s.type_v) if t in QUANTISED_KV]
    if found:
        message = f"a {found[0]} cache is lossy: answers change, more so with a long context"
        yield Lint("kv-lossy", case.typed("type_k", case.typed("type_v", "-ctk")), message, "-ctk f16 -ctv f16")


def kv_rows(case: Case) -> Iterator[Lint]:
    """A head that is not whole blocks of 32 (src/llama-context.cpp:3845-3871, b11434)."""
    s = case.settings
    for kind, flag, sizes in (
        (s.type_k, "-ctk", {layer.head_k for layer in case.model.layers if layer.n_embd_k}),
        (s.type_v, "-ctv", {layer.head_v for layer in case.model.layers if layer.n_embd_v}),
    ):
        odd = sorted(size for size in sizes if size % 32)
        if kind in QUANTISED_KV and odd and s.flash_attn is not FlashAttn.OFF:
            message = f"{kind} has blocks of 32 and heads have {odd[0]} elements: it will not start"
            yield Lint("kv-type-does-not-divide-head", flag, message, f"{flag} f16")


def slots_divide_context(case: Case) -> Iterator[Lint]:
    s = case.settings
    if s.n_parallel > 1 and not s.kv_unified and case.parsed.tool is Tool.SERVER:
        each = s.n_ctx // s.n_parallel
        message = f"each of {s.n_parallel} slots gets {units.counted(each, 'token')}, not {units.count(s.n_ctx)}"
        yield Lint("slots-divide-context", case.typed("n_parallel", "-np"), message, "-kvu")


def auto_slots(case: Case) -> Iterator[Lint]:
    """Four slots keep four recurrent states and widen sliding windows."""
    found = case.parsed.find("n_parallel")
    if case.parsed.tool is not Tool.SERVER or case.settings.n_parallel < 2 or (found and found[1] != "-1"):
        return
    per_slot = any(layer.window or layer.state_r or layer.state_s for layer in case.model.layers)
    grows = "; sliding windows and recurrent state are kept for each" if per_slot else ""
    message = f"without -np llama-server opens {case.settings.n_parallel} slots that share the context{grows}"
    yield Lint("auto-slots", "-np", message, "-np 1")


def default_context(case: Case) -> Iterator[Lint]:
    found = case.parsed.find("n_ctx")
    if case.parsed.tool is Tool.BENCH or (found and found[1] != "0") or case.parsed.has("kv_unified_per_slot"):
        return
    message = (
        f"the context becomes the training context, {units.counted(case.settings.n_ctx, 'token')}, and is paid in full"
    )
    fix = min(case.plan.workload.n_ctx or _FEW_TOKENS, case.settings.n_ctx)
    yield Lint("default-context", "-c", message, f"-c {fix}")


def context_over_training(case: Case) -> Iterator[Lint]:
    s, trained = case.settings, case.model.n_ctx_train
    each = s.n_ctx if s.kv_unified else s.n_ctx // s.n_parallel
    if trained and each > trained:
        message = f"{units.count(each)} tokens per slot are more than the {units.count(trained)} of the training"
        fix = trained if s.kv_unified else trained * s.n_parallel
        yield Lint("context-over-training", case.typed("n_ctx", "-c"), message, f"-c {fix}")


def context_padding(case: Case) -> Iterator[Lint]:
    s = case.settings
    if s.n_ctx % 256 and case.parsed.tool is not Tool.BENCH:
        padded = -(-s.n_ctx // 256) * 256
        message = f"the context is padded to a multiple of 256: {units.count(padded)} tokens are allocated"
        yield Lint("context-not-padded", case.typed("n_ctx", "-c"), message, f"-c {padded}")


CHECKS: tuple[Check, ...] = (
    ubatch_over_batch,
    quantised_v_without_fa,
    kv_pair,
    kv_lossy,
    kv_rows,
    slots_divide_context,
    auto_slots,
    default_context,
    context_over_training,
    context_padding,
)
