"""Indexer caches. Expected values worked out from llama.cpp b11434."""

from __future__ import annotations

from typing import Any

import pytest

from planner.gguf.caches import build_layers
from planner.gguf.hyperparams import load

INDEX, TYPES, RATIOS = "attention.indexer.key_length", "attention.indexer.types", "attention.compress_ratios"
MLA = {"attention.key_length_mla": 24, "attention.value_length_mla": 16, "attention.head_count_kv": 1}


def widths(keys, arch: str, values: dict[str, Any]) -> list[tuple[int, int]]:
    made = keys(arch, {INDEX: 8} | values)
    return [(x.indexer_k, x.indexer_v) for x in build_layers(made, load(made, nextn_present=True))]


NO, K = (0, 0), (8, 0)


@pytest.mark.parametrize(
    ("arch", "values", "expected"),
    [
        ("deepseek32", MLA, [K, K, K, K]),
        ("deepseek32", MLA | {"nextn_predict_layers": 1}, [K, K, K, NO]),
        ("deepseek32", {}, [(8, 16)] * 4),
        ("glm-dsa", MLA, [K, K, K, K]),
        ("glm-dsa", MLA | {"context_length": 1 << 20, "block_count": 8}, [K, K, K, NO, NO, NO, K, NO]),
        ("glm-dsa", MLA | {TYPES: [1, 0, 0], "nextn_predict_layers": 1}, [K, NO, NO, NO]),
        ("hy_v4", MLA | {TYPES: [1, 0, 0, 0]}, [NO, NO, NO, NO]),
        ("hy_v4", MLA | {TYPES: [1, 0, 1, 0], "attention.indexer.top_k": 4}, [K, NO, K, NO]),
        (
            "dots3note",
            MLA | {TYPES: [1, 0, 1], "attention.sliding_window": 64, "attention.sliding_window_pattern": [0, 0, 1, 1]},
            [K, NO, NO, NO],
        ),
        ("minimax-m3", {"leading_dense_block_count": 2}, [NO, NO, (8, 16), (8, 16)]),
        (
            "glm5-next",
            MLA | {"attention.head_count_kv": [1, 0, 1, 1], "attention.indexer.kpool": 4, "nextn_predict_layers": 1},
            [(24, 0), NO, (24, 0), NO],
        ),
        ("qwen4exp", {}, [NO, NO, NO, K]),
        ("qwen4exp", {RATIOS: [0, 0, 0, 4]}, [NO, NO, NO, (16, 0)]),
        ("deepseek4", {RATIOS: [0, 4, 128, 4], "attention.sliding_window": 64}, [NO, K, NO, K]),
        ("llama", {}, [NO] * 4),
    ],
)
def test_indexers(keys, arch: str, values: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    assert widths(keys, arch, values) == expected


def test_pooling_blocks_know_how_many_cells_they_pool(keys) -> None:
    made = keys("qwen4exp", {INDEX: 8, RATIOS: [0, 0, 0, 4]})
    assert [x.compress_ratio for x in build_layers(made, load(made, nextn_present=True))] == [0, 0, 0, 4]
