"""Cache sizes against llama.cpp's own figures."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.facts.model import AttentionKind, Layer, Model
from planner.gguf.analyze import analyze
from planner.gguf.caches import build_layers
from planner.gguf.hyperparams import load

MIB = 1 << 20
ROW = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}


def pad256(n: int) -> int:
    return (n + 255) // 256 * 256


def context_bytes(
    model: Model, n_ctx: int, n_ubatch: int = 512, n_parallel: int = 1, k: str = "f16", v: str = "f16", fa: bool = True
) -> float:
    """KV, indexer, compressed and recurrent bytes with separate streams: a second, short spelling of the rules."""
    cells = n_ctx // n_parallel
    kept = [x for x in model.layers if not x.nextn or x.nextn_cached]
    widest_v = max((x.head_v * x.n_head_kv for x in model.layers), default=0)
    return sum(layer_bytes(x, cells, n_ubatch, ROW[k], ROW[v], 0 if fa else widest_v) for x in kept) * n_parallel


def layer_bytes(x: Layer, cells: int, n_ubatch: int, k: float, v: float, v_width: int) -> float:
    own = pad256(min(cells, x.window + n_ubatch)) if x.window else cells
    width = (v_width or x.n_embd_v) if x.n_embd_v else 0
    packs = x.kind is AttentionKind.COMPRESSED and x.compress_ratio > 0
    index_cells = pad256(-(-cells // x.compress_ratio)) if packs else cells
    packed = index_cells * x.n_embd_k * k if packs else 0.0
    return (
        own * (x.n_embd_k * k + width * v)
        + packed
        + index_cells * (x.indexer_k * k + x.indexer_v * v)
        + 4 * (x.state_r + x.state_s)
    )


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def arch_models(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """llama.cpp's own test architectures."""
    archs = shared / "zoo" / "archs"
    folder = tmp_path_factory.mktemp("archs")
    sizes = json.loads((archs / "index.json").read_text())
    models = {}
    for name, size in sizes.items():
        path = folder / f"{name}.gguf"
        path.write_bytes(lzma.decompress((archs / f"{name}.head.xz").read_bytes()))
        with path.open("r+b") as file:
            file.truncate(size["file_bytes"])
        models[name] = analyze(str(path))
    return models


def test_test_architectures_match_llama_fit_params(shared: Path, arch_models: dict[str, Model]) -> None:
    wrong = []
    for row in rows(shared / "zoo" / "archs" / "memory_truth.jsonl"):
        got = context_bytes(
            arch_models[row["arch"]],
            row["ctx"],
            row["ubatch"],
            row["n_parallel"],
            row["ctk"],
            row["ctv"],
            row["fa"] == "on",
        )
        want = sum(int(r[2]) for r in row["rows"])
        if int(got) // MIB != want:
            wrong.append((row["arch"], row["ctx"], row["n_parallel"], row["ctk"], row["fa"], want, got / MIB))
    assert not wrong, wrong


def test_published_layouts_match_llama_fit_params(shared: Path, zoo: Callable[[str], Path]) -> None:
    measured = rows(shared / "cases" / "cuda_memory.jsonl")
    models = {name: analyze(str(zoo(name))) for name in {row["model"] for row in measured}}
    for row in measured:
        got = context_bytes(
            models[row["model"]], row["ctx"], row["ubatch"], 1, row["ctk"], row["ctv"], row["fa"] != "off"
        )
        assert int(got) // MIB == sum(device["context"] for device in row["mib"].values()), row


def layers(keys, arch: str, values: dict[str, Any], nextn: bool = False) -> tuple[Layer, ...]:
    made = keys(arch, values)
    return build_layers(made, load(made, nextn_present=nextn))


def kept(found: tuple[Layer, ...]) -> list[tuple[str, int, int]]:
    return [(x.kind.value, x.n_embd_k, x.n_embd_v) for x in found]


def test_grouped_heads_take_the_given_lengths(keys) -> None:
    found = layers(keys, "llama", {"attention.key_length": 20, "attention.head_count_kv": [1, 2, 3, 0]})
    assert kept(found) == [("full", 20, 16), ("full", 40, 32), ("full", 60, 48), ("none", 0, 0)]


def test_windows_have_their_own_head_lengths(keys) -> None:
    values = {
        "attention.sliding_window": 64,
        "attention.sliding_window_pattern": [1, 0, 1, 0],
        "attention.key_length": 32,
        "attention.key_length_swa": 8,
        "attention.value_length_swa": 12,
        "attention.shared_kv_layers": 1,
    }
    found = layers(keys, "gemma4", values)
    assert kept(found) == [("swa", 16, 24), ("full", 64, 32), ("swa", 16, 24), ("shared", 0, 0)]
    assert [x.window for x in found] == [64, 0, 64, 0]
    assert [x.kind.value for x in layers(keys, "llama4", {})] == ["chunked", "chunked", "chunked", "full"]


def test_gemma3n_shares_from_block_20_on(keys) -> None:
    found = layers(keys, "gemma3n", {"block_count": 30, "attention.sliding_window": 512})
    assert [x.index for x in found if x.kind is AttentionKind.SHARED] == list(range(20, 30))


def test_latents_are_cached_once(keys) -> None:
    mla = {"attention.key_length": 576, "attention.value_length": 512, "attention.head_count_kv": 1}
    both = {"attention.key_length_mla": 192, "attention.value_length_mla": 128}
    assert kept(layers(keys, "deepseek2", mla | both))[0] == ("mla", 576, 0)
    assert kept(layers(keys, "deepseek2", mla))[0] == ("full", 576, 512)


def test_encoders_and_diffusion_models_cache_nothing(keys) -> None:
    assert kept(layers(keys, "llada-moe", {})) == [("full", 0, 0)] * 4


SSM = {"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16, "ssm.group_count": 1}


def test_hybrids_keep_either_and_falcon_h1_both(keys) -> None:
    found = layers(keys, "qwen35moe", SSM)
    assert kept(found) == [("recurrent", 0, 0)] * 3 + [("full", 32, 32)]
    assert [(x.state_r, x.state_s) for x in found] == [(480, 2048)] * 3 + [(0, 0)]
    both = layers(keys, "falcon-h1", SSM)
    assert kept(both) == [("full", 32, 32)] * 4
    assert all(x.state_s == 2048 for x in both)


def test_one_function_per_block(keys) -> None:
    values = {"attention.head_count_kv": [0, 2, 0, 2], "feed_forward_length": [0, 0, 9, 9]}
    assert kept(layers(keys, "nemotron_h_moe", SSM | values)) == [
        ("recurrent", 0, 0), ("full", 32, 32), ("none", 0, 0), ("none", 0, 0),
    ]  # fmt: skip


def test_compressed_caches_and_their_state(keys) -> None:
    values = {
        "attention.compress_ratios": [0, 4, 128, 4, 0],
        "attention.sliding_window": 128,
        "attention.indexer.key_length": 8,
        "attention.head_count_kv": 1,
        "nextn_predict_layers": 1,
    }
    found = layers(keys, "deepseek4", values, nextn=True)
    assert kept(found) == [("compressed", 16, 0)] * 4
    assert [x.compress_ratio for x in found] == [0, 4, 128, 4]
    assert [(x.state_r, x.state_s) for x in found] == [(0, 0), (256, 512), (0, 4096), (0, 0)]
    assert [x.window for x in found] == [128] * 4
    assert [(x.nextn, x.nextn_cached) for x in found] == [(False, False)] * 3 + [(True, True)]


@pytest.mark.parametrize(("arch", "cached"), [("glm4moe", False), ("qwen35moe", False), ("bailingmoe3", True)])
def test_multi_token_prediction_blocks(keys, arch: str, cached: bool) -> None:
    found = layers(keys, arch, {"nextn_predict_layers": 1})
    assert [x.nextn for x in found] == [False, False, False, True]
    assert found[3].nextn_cached is cached
    assert found[3].n_embd_k == 32
