"""Who computes what, and properties of compute buffers that hold for every model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from planner.cost.model import CostModel
from planner.facts.machine import Backend, DriverModel, Engine
from planner.facts.reading import Source
from planner.gguf.analyze import analyze
from planner.plans.memory import total
from planner.plans.settings import FlashAttn, Settings, SplitMode, Tool
from planner.units import MIB
from tests.builders import make_gpu, make_layer, make_machine, make_model, make_settings


def compute(
    settings: Settings, *, backend: Backend = Backend.CUDA, tool: Tool = Tool.SERVER, n_layer: int = 4
) -> dict[str, int]:
    """Compute bytes by device."""
    gpus = tuple(make_gpu(device, backend=backend) for device in ("CUDA0", "CUDA1"))
    memory = CostModel(make_model(n_layer), make_machine(*gpus), tool).memory(settings)
    return {d.id: total(d.compute) for d in memory.devices} | {"CPU": total(memory.host.compute)}


def names(settings: Settings, **kw: Backend) -> set[str]:
    cost = CostModel(make_model(), make_machine(make_gpu(**kw)))
    return {term.name for term in cost.memory(settings).devices[0].compute}


def test_depth_and_number_of_host_blocks_do_not_matter() -> None:
    # a compute buffer is the largest single stage (ggml-org/llama.cpp#27953)
    settings = make_settings(n_cpu_moe=99)
    assert compute(settings, n_layer=8) == compute(settings, n_layer=40)


def test_the_mask_is_two_bytes_per_cell_and_token_with_flash_attention() -> None:
    small, large = (compute(make_settings(n_ctx=n, n_ubatch=512)) for n in (65536, 131072))
    grown = 2 * 65536 * 512
    assert grown <= large["CUDA0"] - small["CUDA0"] <= 1.01 * grown
    assert large["CPU"] - small["CPU"] == grown


def test_staging_starts_at_32_tokens() -> None:
    # cases: 18.4 MiB at u 16, 1,708.9 at u 32 (op offload, #18535)
    assert "staged host weights" not in names(make_settings(n_cpu_moe=4, n_ubatch=31))
    assert "staged host weights" in names(make_settings(n_cpu_moe=4, n_ubatch=32))
    assert "staged host weights" not in names(make_settings(n_cpu_moe=4, n_ubatch=32, op_offload=False))
    assert "staged host weights" not in names(make_settings(n_cpu_moe=0))
    assert "staged host weights" not in names(make_settings(n_cpu_moe=4), backend=Backend.RPC)


def test_the_host_computes_experts_that_nobody_stages() -> None:
    def host(**changes: object) -> set[str]:
        model = make_model(layers=tuple(make_layer(i, n_expert_used=8) for i in range(4)))
        settings = make_settings(n_cpu_moe=4, n_ctx=256, n_ubatch=256, **changes)
        return {term.name for term in CostModel(model, make_machine(make_gpu())).memory(settings).host.compute}

    assert "expert activations" in host(op_offload=False)
    assert "expert activations" not in host()


def test_without_flash_attention_scores_are_f32_per_head() -> None:
    on, off = (compute(make_settings(n_ctx=16384, flash_attn=f))["CUDA0"] for f in (FlashAttn.ON, FlashAttn.OFF))
    scores, mask = 4 * 16384 * 512 * 4, 2 * 16384 * 512
    assert scores <= off - on <= 1.05 * (scores + mask) + 8 * MIB


def test_quantised_caches_are_copied_to_f16_on_cuda_only() -> None:
    plain, quantised = (make_settings(n_ctx=131072, n_ubatch=16, type_k=t, type_v=t) for t in ("f16", "q8_0"))
    copies = 2 * 131072 * 256
    assert compute(quantised)["CUDA0"] - compute(plain)["CUDA0"] >= 0.999 * copies
    assert compute(quantised, backend=Backend.RPC)["CUDA0"] - compute(plain, backend=Backend.RPC)["CUDA0"] < copies


def test_tools_that_output_every_token_need_more_logits() -> None:
    settings = make_settings(n_ctx=512)
    assert compute(settings, tool=Tool.FIT_PARAMS)["CUDA0"] > compute(settings)["CUDA0"]


def test_pipeline_copies_need_two_devices_and_no_override() -> None:
    two = make_settings(devices=("CUDA0", "CUDA1"), n_ctx=65536)
    mask = 2 * 65536 * 512
    piped, plain = compute(two), compute(replace(two, n_cpu_moe=1))
    assert piped["CUDA1"] - plain["CUDA1"] >= 3 * mask
    for changes in ({"kv_offload": False}, {"n_gpu_layers": 4}, {"override_tensor": (("exps", "CPU"),)}):
        assert compute(replace(two, **changes))["CUDA1"] < piped["CUDA1"]


def test_pipeline_inputs_of_two_devices_by_hand() -> None:
    # llama-fit-params b11549, two RPC devices, qwen3-30b-a3b, c 4096, u 512: 152 / 348 / 56 MiB. Here: every input
    # of the host four times (rows of 256 x 512 f32, mask 4 MiB) and the two gathered rows.
    row, mask = 4 * 256 * 512, 2 * 4096 * 512
    piped = compute(make_settings(devices=("CUDA0", "CUDA1")), backend=Backend.RPC)
    held = 4 * (2 * row + mask) + 2 * row
    assert held <= piped["CPU"] <= held + 4 * 5 * 8 * 512  # and a few indices per token


def test_only_the_first_device_stages() -> None:
    cost = CostModel(make_model(), make_machine(make_gpu("CUDA0"), make_gpu("CUDA1")))
    memory = cost.memory(make_settings(devices=("CUDA0", "CUDA1"), n_cpu_moe=4, n_ubatch=32))
    staged = [any(t.name == "staged host weights" for t in d.compute) for d in memory.devices]
    assert staged == [True, False]


@pytest.mark.parametrize("n_ubatch", [64, 512, 2048])
def test_a_larger_batch_never_needs_less(n_ubatch: int) -> None:
    small, large = (compute(make_settings(n_ctx=8192, n_ubatch=n)) for n in (n_ubatch, 2 * n_ubatch))
    assert all(large[device] >= small[device] for device in small)


def test_host_blocks_of_large_batches_are_computed_on_the_device() -> None:
    # -ngl: from 32 tokens on every multiply goes to the device with its weight, attention between them too
    small, large = (make_settings(n_gpu_layers=2, n_ctx=8192, n_ubatch=n, flash_attn=FlashAttn.OFF) for n in (31, 32))
    scores = 4 * 4 * 8192
    assert compute(small)["CPU"] >= 31 * scores
    assert compute(large)["CPU"] < 16 * scores < 32 * scores <= compute(large)["CUDA0"]


def test_a_host_cache_of_large_batches_is_copied_to_the_device() -> None:
    settings = make_settings(n_ctx=8192, n_ubatch=512)
    names = {t.name for t in CostModel(make_model(), make_machine(make_gpu())).memory(settings).devices[0].compute}
    cost = CostModel(make_model(), make_machine(make_gpu()))
    moved = {t.name for t in cost.memory(replace(settings, kv_offload=False)).devices[0].compute}
    assert {"K copy", "V copy"} <= moved - names


def test_a_draft_context_has_a_compute_buffer_of_its_own() -> None:
    layers = (*(make_layer(i) for i in range(3)), make_layer(3, nextn=True))
    cost = CostModel(make_model(layers=layers), make_machine(make_gpu()))
    plain, drafting = (cost.memory(make_settings(spec_type=s)).devices[0].compute for s in (None, "draft-mtp"))
    added = [term for term in drafting if term.name.startswith("draft ")]
    assert {t.name for t in drafting} - {t.name for t in plain} >= {t.name for t in added} > set()
    assert sum(t.n_bytes for t in added) > 2 * 4096 * 512  # its own mask, at least
    assert all(t.source is Source.ASSUMED for t in added)


def test_a_split_that_cuts_tensors_is_counted_in_whole_layers_and_says_so() -> None:
    cost = CostModel(make_model(), make_machine(make_gpu("CUDA0"), make_gpu("CUDA1")))
    layer, row = (
        cost.memory(make_settings(devices=("CUDA0", "CUDA1"), split_mode=m)) for m in (SplitMode.LAYER, SplitMode.ROW)
    )
    for a, b in zip(layer.devices, row.devices, strict=True):
        assert (total(a.model), total(a.context)) == (total(b.model), total(b.context))
        assert all(t.source is Source.ASSUMED for t in (*b.model, *b.context, *b.compute))


def test_every_device_of_a_tensor_split_runs_the_whole_graph() -> None:
    # llama-fit-params b11549 -sm tensor, two devices: qwen3-30b-a3b Meta() 328 MiB, what one device alone has
    alone = compute(make_settings())
    both = compute(make_settings(devices=("CUDA0", "CUDA1"), split_mode=SplitMode.TENSOR))
    assert both == {"CUDA0": alone["CUDA0"], "CUDA1": alone["CUDA0"], "CPU": alone["CPU"]}


def test_without_a_cache_the_mask_is_as_wide_as_the_batch() -> None:
    def host(arch: str, n_ctx: int) -> int:
        model = make_model(arch=arch)
        return total(CostModel(model, make_machine(make_gpu())).memory(make_settings(n_ctx=n_ctx)).host.compute)

    assert host("llada-moe", 4096) == host("llada-moe", 65536)
    assert host("qwen3moe", 4096) < host("qwen3moe", 65536)


def test_an_f32_cache_is_copied_to_f16_for_flash_attention() -> None:
    wide, narrow = (compute(make_settings(type_v=kind, n_ubatch=16))["CUDA0"] for kind in ("f32", "f16"))
    cells, row = make_settings().n_ctx, make_model().layers[0].n_embd_v
    assert 0.9 * 2 * cells * row <= wide - narrow <= 1.1 * 2 * cells * row


WDDM, LINUX = DriverModel.WDDM, DriverModel.LINUX


@pytest.mark.parametrize(
    ("build", "driver", "more"),
    [(10666, LINUX, True), (11434, WDDM, False), (None, LINUX, False), (None, WDDM, True)],
)
def test_old_builds_hold_an_indexers_scores(
    zoo: Callable[[str], Path], build: int | None, driver: DriverModel, more: bool
) -> None:
    """64K, ubatch 8,192: b10666 logged 9,515 MiB (zhaoyilun/moe-working-set-16gb), the builds mirrored take less."""
    model = analyze(str(zoo("qwen3.8-flash-next")))
    machine = replace(make_machine(make_gpu(driver_model=driver)), engine=Engine("llama.cpp", build))
    settings = make_settings(
        n_ctx=65536, n_ubatch=8192, n_batch=8192, n_cpu_moe=48, n_gpu_layers=49, flash_attn=FlashAttn.ON
    )
    found = total(CostModel(model, machine).memory(settings).devices[0].compute) / MIB
    assert (found == pytest.approx(9515, rel=0.03)) is more
