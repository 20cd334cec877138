"""Window patterns, recurrent blocks and state sizes. Expected values worked out from llama.cpp b11434."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import ModelFileError
from planner.gguf.architectures import (
    BOTH,
    FULL_ATTENTION_INTERVAL,
    KNOWN,
    NEXTN_CACHED,
    NO_CACHE,
    ONE_FUNCTION_PER_BLOCK,
    RECURRENT,
    WINDOWS,
    ZERO_KV_RECURRENT,
)
from planner.gguf.attention import lookup_state, recurrent_blocks, sliding, state_sizes
from planner.gguf.hyperparams import load

WINDOW, PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"


def slides(keys, arch: str, values: dict[str, Any]) -> tuple[int, str]:
    made = keys(arch, {"block_count": 8, "attention.head_count_kv": 2} | values)
    found = sliding(made, load(made, nextn_present=True))
    return found.n_swa, "".join("s" if s else "." for s in found.blocks)


def test_tables_name_known_architectures_only() -> None:
    for table in (NO_CACHE, RECURRENT, ZERO_KV_RECURRENT, ONE_FUNCTION_PER_BLOCK, BOTH, NEXTN_CACHED):
        assert table <= KNOWN
    assert WINDOWS.keys() | FULL_ATTENTION_INTERVAL.keys() <= KNOWN


@pytest.mark.parametrize(
    ("arch", "values", "expected"),
    [
        ("gpt-oss", {WINDOW: 128}, (128, "s.s.s.s.")),
        ("gemma3", {WINDOW: 1024}, (1024, "sssss.ss")),
        ("gemma3", {}, (0, "........")),
        ("gemma2", {}, (4096, "s.s.s.s.")),
        ("laguna", {WINDOW: 64}, (64, ".sss.sss")),
        ("laguna", {WINDOW: 0}, (0, "........")),
        ("llama4", {}, (8192, "sss.sss.")),
        ("llama4", {WINDOW: 0}, (0, "........")),
        ("llama4", {WINDOW: 100}, (8192, "sss.sss.")),
        ("smallthinker", {WINDOW: 7}, (4096, ".sss.sss")),
        ("smallthinker", {}, (0, "........")),
        ("exaone4", {WINDOW: 4096}, (0, "........")),
        ("exaone-moe", {WINDOW: 128, "nextn_predict_layers": 1}, (128, "sss.sss.")),
        ("gpt-oss", {WINDOW: 128, "nextn_predict_layers": 2}, (128, "s.s.s...")),
        ("gpt-oss", {WINDOW: 128, PATTERN: 4}, (128, "sss.sss.")),
        ("gpt-oss", {WINDOW: 128, PATTERN: [True, True, False, False] * 2}, (128, "ss..ss..")),
        ("gemma4", {WINDOW: 512, PATTERN: [1, 0, 1]}, (512, "s.s.....")),
        ("deepseek4", {WINDOW: 128}, (128, "ssssssss")),
        ("qwen2", {WINDOW: 4096, PATTERN: 2}, (0, "........")),
        ("phi3", {WINDOW: 2047}, (0, "........")),
        ("newcomer", {WINDOW: 256, PATTERN: [1, 0] * 4}, (256, "s.s.s.s.")),
        ("newcomer", {WINDOW: 256, PATTERN: 4}, (256, "sss.sss.")),
        ("newcomer", {WINDOW: 256}, (256, "........")),
    ],
)
def test_windows(keys, arch: str, values: dict[str, Any], expected: tuple[int, str]) -> None:
    assert slides(keys, arch, values) == expected


def test_exaone4_slides_at_64_blocks_only(keys) -> None:
    assert slides(keys, "exaone4", {"block_count": 64})[1][:8] == "sss.sss."


def test_a_pattern_that_must_be_in_the_file(keys) -> None:
    with pytest.raises(ModelFileError, match="sliding_window_pattern"):
        slides(keys, "mimo2", {WINDOW: 128})


def recurs(keys, arch: str, values: dict[str, Any]) -> str:
    made = keys(arch, {"block_count": 8} | values)
    return "".join("r" if r else "." for r in recurrent_blocks(made, load(made, nextn_present=True)))


@pytest.mark.parametrize(
    ("arch", "values", "expected"),
    [
        ("qwen3next", {}, "rrr.rrr."),
        ("qwen35moe", {"full_attention_interval": 2}, "r.r.r.r."),
        ("qwen35moe", {"nextn_predict_layers": 1}, "rrr.rrr."),
        ("qwen35moe", {"nextn_predict_layers": 2}, "rrr.rr.."),
        ("qwen35moe", {"attention.recurrent_layers": [True, False] * 4}, "r.r.r.r."),
        ("minimax-01", {}, "rrrrrrr."),
        ("jamba", {"attention.head_count_kv": [0, 0, 2, 0] * 2}, "rr.rrr.r"),
        ("kimi-linear", {"attention.head_count_kv": [0, 1] * 4}, "r.r.r.r."),
        (
            "nemotron_h_moe",
            {"attention.head_count_kv": [0, 0, 2, 0] * 2, "feed_forward_length": [0, 9, 0, 9] * 2},
            "r...r...",
        ),
        ("falcon-h1", {}, "rrrrrrrr"),
        ("mamba", {}, "rrrrrrrr"),
        ("llama", {"attention.head_count_kv": [0, 2] * 4}, "........"),
    ],
)
def test_recurrent_blocks(keys, arch: str, values: dict[str, Any], expected: str) -> None:
    assert recurs(keys, arch, values) == expected


def test_interval_of_zero(keys) -> None:
    with pytest.raises(ModelFileError, match="full_attention_interval"):
        recurs(keys, "qwen3next", {"full_attention_interval": 0})


SSM = {"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16}


@pytest.mark.parametrize(
    ("arch", "values", "expected"),
    [
        ("mamba", SSM, (3 * 128, 16 * 128)),
        ("mamba2", SSM | {"ssm.group_count": 2}, (3 * (128 + 2 * 2 * 16), 16 * 128)),
        ("rwkv6", {"wkv.head_size": 64}, (2 * 64, 64 * 64)),
        ("arwkv7", {"wkv.head_size": 64, "token_shift_count": 1}, (64, 64 * 64)),
        ("lfm2moe", {"shortconv.l_cache": 3}, (64 * 2, 0)),
        ("kimi-linear", {"kda.head_dim": 32, "ssm.conv_kernel": 4}, (3 * 3 * 4 * 32, 32 * 32 * 4)),
        ("minimax-01", {"attention.key_length": 32}, (0, 32 * 32 * 4)),
    ],
)
def test_state_sizes(keys, arch: str, values: dict[str, Any], expected: tuple[int, int]) -> None:
    made = keys(arch, values)
    assert state_sizes(made, load(made, nextn_present=False)) == expected


def test_a_state_key_of_another_architecture_counts_for_nothing(keys) -> None:
    # llama-fit-params b11549 on a qwen3next file that carries wkv.head_size, shortconv.l_cache and kda.head_dim
    strange = {"wkv.head_size": 64, "shortconv.l_cache": 3, "kda.head_dim": 32}
    made = keys("qwen3next", SSM | strange)
    assert state_sizes(made, load(made, nextn_present=False)) == (3 * 128, 16 * 128)


def test_lookup_state(keys) -> None:
    values = {"ple.layers": [1], "ple.conv_kernel": 4, "ple.ngram_size": 3, "hyper_connection.count": 4}
    made = keys("qwen4exp", values)
    assert lookup_state(made, load(made, nextn_present=False)) == (frozenset({1}), 3 * 3 * 4 * 64)
    made = keys("qwen4exp", {})
    assert lookup_state(made, load(made, nextn_present=False)) == (frozenset(), 0)
