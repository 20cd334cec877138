"""Checks of where weights go and who computes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from emit.dialect import Dialect
from emit.flag_table import FLAGS
from emit.lint_case import Case, Check
from planner import units
from planner.plans.plan import Lint
from planner.plans.settings import SplitMode, Tool

_PLACEMENT = ("override_tensor", "n_cpu_moe", "cpu_moe", "n_cpu_ffn")
_FIT = next(flag for flag in FLAGS if flag.setting == "fit")


def _has_fit(dialect: Dialect, tool: Tool) -> bool:
    return dialect.has(_FIT, tool)


def fit_beside_placement(case: Case) -> Iterator[Lint]:
    """llama.cpp's fit gives up beside any placement and goes on unfitted (common/fit.cpp:463-484, b11312)."""
    parsed = case.parsed
    layers = parsed.find("n_gpu_layers")
    found = parsed.find(*_PLACEMENT)
    if not found and layers and layers[1] not in ("auto", "-1"):
        found = layers
    if not found and len(case.settings.devices) > 1:
        found = parsed.find("tensor_split")
    if not found or not _has_fit(parsed.dialect, parsed.tool) or parsed.fit is False:
        return
    how = "is on" if parsed.fit else "is on by default"
    message = f"-fit {how}, gives up beside {found[0]} and lets the load go on without it"
    yield Lint("fit-with-placement", found[0], message, "-fit off")


def fit_decides(case: Case) -> Iterator[Lint]:
    """Without placement flags, fit moves layers and context as it likes."""
    parsed = case.parsed
    if parsed.fit is False or not _has_fit(parsed.dialect, parsed.tool) or not case.plan.chosen.shortfalls:
        return
    if not parsed.has(*_PLACEMENT, "n_gpu_layers"):
        message = "these flags do not fit as written; -fit will move layers or cut the context to 4,096 unasked"
        yield Lint("fit-decides", "-fit", message, "-fit off")


def ncmoe_beyond_blocks(case: Case) -> Iterator[Lint]:
    found = case.parsed.find("n_cpu_moe")
    if found and found[1].isdecimal() and int(found[1]) > case.model.n_layer:
        message = f"the model has {units.counted(case.model.n_layer, 'block')}: every N from there on is the same"
        yield Lint("ncmoe-beyond-blocks", found[0], message, f"--n-cpu-moe {case.model.n_layer}")


def ncmoe_on_dense(case: Case) -> Iterator[Lint]:
    found = case.parsed.find("n_cpu_moe", "cpu_moe")
    if found and not case.model.is_moe and found[1] != "0":
        fix = f"--n-cpu-ffn {found[1]}" if found[1] else f"--n-cpu-ffn {case.model.n_layer}"
        yield Lint("ncmoe-on-dense-model", found[0], "the model has no experts: it has no effect", fix)


def no_tensor_split(case: Case) -> Iterator[Lint]:
    """The default split counts layers before experts are taken out (ggml-org/llama.cpp#15136)."""
    s = case.settings
    if len(s.devices) < 2 or not s.n_cpu_moe or s.tensor_split or s.split_mode is not SplitMode.LAYER:
        return
    flag = case.typed("n_cpu_moe", "--n-cpu-moe")
    message = (
        "several GPUs without -ts: layers are split by free memory before experts are taken out, so the "
        "stripped layers fill the first device and the full ones the last"
    )
    yield Lint("ncmoe-without-tensor-split", flag, message, f"-ts {_balanced(case)}")


def _balanced(case: Case) -> str:
    """Layers per device so that weight bytes after overrides follow free VRAM; the output layer counts as one."""
    s, model = case.settings, case.model
    experts = case.expert_bytes()
    weights = [0] * (model.n_layer + 1)
    for tensor in model.tensors:
        if tensor.layer is not None:
            weights[tensor.layer] += tensor.n_bytes
        elif tensor.name.startswith("output"):
            weights[model.n_layer] += tensor.n_bytes
    for block in range(min(s.n_cpu_moe, model.n_layer)):
        weights[block] -= experts.get(block, 0)
    free = [max(gpu.total_bytes - (gpu.used_bytes or 0), 1) for gpu in case.gpus]
    total, counts, done, device = sum(weights), [0] * len(free), 0, 0
    limit = total * free[0] / sum(free)
    for n_bytes in weights:
        while device < len(free) - 1 and done + n_bytes / 2 > limit:
            device += 1
            limit += total * free[device] / sum(free)
        counts[device] += 1
        done += n_bytes
    return ",".join(map(str, counts))


def row_split(case: Case) -> Iterator[Lint]:
    """Row split of an MoE: 6.5 against 39 to 49 tok/s on two 16 GB cards (public report)."""
    if case.model.is_moe and case.settings.split_mode in (SplitMode.ROW, SplitMode.TENSOR):
        mode = case.settings.split_mode.value
        message = f"-sm {mode} cuts every expert over all devices; row split ran 6 times slower on two cards"
        yield Lint("row-split-moe", case.typed("split_mode", "-sm"), message, "-sm layer")


def shadowed_override(case: Case) -> Iterator[Lint]:
    """First match wins: an override whose tensors earlier ones took does nothing."""
    overrides = case.settings.override_tensor
    names = [tensor.name for tensor in case.model.tensors]
    taken: set[str] = set()
    counts: list[int] = []
    shadowed = None
    for pattern, _ in overrides:
        found = {name for name in names if re.search(pattern, name)}
        counts.append(len(found))
        if found and found <= taken:
            shadowed = shadowed or pattern
        taken |= found
    if shadowed is not None:
        ordered = [overrides[i] for i in sorted(range(len(overrides)), key=lambda i: counts[i])]
        fix = ",".join(f"{pattern}={buffer}" for pattern, buffer in ordered)
        message = f"the first match wins, and an earlier pattern takes every tensor of {shadowed!r}"
        yield Lint("override-shadowed", case.typed("override_tensor", "-ot"), message, f"-ot {fix}")


def idle_override(case: Case) -> Iterator[Lint]:
    for pattern, buffer in case.settings.override_tensor:
        if not any(re.search(pattern, tensor.name) for tensor in case.model.tensors):
            message = f"{pattern!r}={buffer} matches no tensor of this model: leave it out"
            yield Lint("override-matches-nothing", case.typed("override_tensor", "-ot"), message, "")


def no_op_offload(case: Case) -> Iterator[Lint]:
    """Measured: prefill 516 instead of 10,202 tok/s (qwen3-30b-a3b, ``-ncmoe 28``, b11434)."""
    if not case.settings.op_offload and case.settings.devices and case.experts_on_host:
        message = "prefill computes host experts on the CPU: 516 instead of 10,202 tok/s where it was measured"
        yield Lint("no-op-offload", case.typed("op_offload", "--no-op-offload"), message, "--op-offload")


def small_ubatch(case: Case) -> Iterator[Lint]:
    """Batches under 32 tokens never reach the GPU's copy path (``GGML_OP_OFFLOAD_MIN_BATCH``, b11312)."""
    s = case.settings
    if 0 < s.n_ubatch < 32 and s.devices and case.experts_on_host and s.op_offload:
        message = "below 32 tokens host experts stay on the CPU in prefill; it saves compute memory and costs prefill"
        yield Lint("ubatch-below-offload", case.typed("n_ubatch", "-ub"), message, "-ub 512")


def threads_over_cores(case: Case) -> Iterator[Lint]:
    """``-t 48`` on 32 cores cost 69 % (public report); logical cores do not multiply faster."""
    cores = case.machine.cpu.physical_cores
    best = case.machine.cpu.performance_cores or cores
    for setting, flag in (("threads", "-t"), ("threads_batch", "-tb")):
        asked = case.settings.threads if setting == "threads" else case.settings.threads_batch
        if cores and asked and asked > cores:
            there = units.counted(cores, "physical core")
            message = f"{asked} threads on {there}: more than one per core slows every multiply down"
            yield Lint("threads-over-cores", case.typed(setting, flag), message, f"{flag} {best}")


def moe_cache_thrashes(case: Case) -> Iterator[Lint]:
    """An LRU below about two token cycles evicts what the next layer needs (measured on b11549)."""
    s, model = case.settings, case.model
    if not s.moe_cache_mib or not model.n_expert:
        return
    experts = case.expert_bytes()
    host = sum(n_bytes for block, n_bytes in experts.items() if block < s.n_cpu_moe)
    cycle = host * model.n_expert_used // model.n_expert
    if cycle and s.moe_cache_mib * units.MIB < 2 * cycle:
        wanted = -(-2 * cycle // units.MIB)
        message = f"one token uses {units.mib(cycle)} of host experts; a cache under two tokens' worth thrashes"
        yield Lint("moe-cache-thrashes", "--moe-cache-mib", message, f"--moe-cache-mib {wanted}")


CHECKS: tuple[Check, ...] = (
    fit_beside_placement,
    fit_decides,
    ncmoe_beyond_blocks,
    ncmoe_on_dense,
    no_tensor_split,
    row_split,
    shadowed_override,
    idle_override,
    no_op_offload,
    small_ubatch,
    threads_over_cores,
    moe_cache_thrashes,
)
