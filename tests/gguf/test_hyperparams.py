from __future__ import annotations

from typing import Any

import pytest

from planner.errors import ModelFileError
from planner.gguf.hyperparams import load


def test_defaults(keys) -> None:
    hp = load(keys("llama", {}, without=("attention.head_count_kv", "feed_forward_length")), nextn_present=False)
    assert hp.n_head == hp.n_head_kv == (4,) * 4
    assert (hp.head_k, hp.head_v, hp.head_k_swa, hp.head_v_swa) == (16, 16, 16, 16)
    assert hp.n_ff == (0,) * 4
    assert hp.n_layer == hp.n_layer_all == 4
    assert not hp.mla


def test_scalars_and_arrays_per_layer(keys) -> None:
    values = {
        "attention.head_count": [4, 8, 4, 8],
        "attention.head_count_kv": [1, 0, 2, 0],
        "feed_forward_length": [10, 20, 30, 40],
        "expert_count": 8,
        "expert_used_count": [2, 2, 4, 4],
        "attention.key_length": 20,
        "attention.key_length_swa": 24,
    }
    hp = load(keys("llama", values), nextn_present=False)
    assert hp.n_head == (4, 8, 4, 8)
    assert hp.n_head_kv == (1, 0, 2, 0)
    assert hp.n_ff == (10, 20, 30, 40)
    assert hp.n_expert_used == (2, 2, 4, 4)
    assert (hp.head_k, hp.head_v, hp.head_k_swa) == (20, 16, 24)
    one = load(keys("llama", {"expert_count": 8, "expert_used_count": 2}), nextn_present=False)
    assert one.n_expert_used == (2,) * 4


def test_mla_needs_both_keys(keys) -> None:
    half = {"attention.key_length_mla": 192}
    assert not load(keys("deepseek2", half), nextn_present=False).mla
    assert load(keys("deepseek2", half | {"attention.value_length_mla": 128}), nextn_present=False).mla


def test_nextn_blocks(keys) -> None:
    values = {"nextn_predict_layers": 1}
    assert load(keys("glm4moe", values), nextn_present=False).n_layer == 3
    assert load(keys("deepseek4", values), nextn_present=True).n_layer == 3
    assert load(keys("deepseek4", values), nextn_present=False).n_layer == 4


def test_blocks_that_run_without_being_stored(keys) -> None:
    assert load(keys("nanbeige", {"num_loops": 3}), nextn_present=False).n_head == (4,) * 12
    switch = load(keys("graniteswitch", {}), nextn_present=False)
    assert (switch.n_head_kv, switch.n_layer) == ((2, 2, 2, 2, 1), 5)
    with pytest.raises(ModelFileError, match="1 to 512 blocks"):
        load(keys("nanbeige", {"num_loops": 129}), nextn_present=False)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"attention.head_count_kv": [1, 2]}, "4 entries"),
        ({"attention.head_count_kv": "two"}, "found another type"),
        ({"attention.head_count_kv": 2.5}, "found 2.5"),
        ({"attention.head_count_kv": -1}, "found -1"),
        ({"attention.head_count_kv": 1 << 32}, "2^32 - 1"),
        ({"attention.head_count_kv": True}, "found True"),
        ({"embedding_length": [1, 2]}, "a number as llama.embedding_length"),
        ({"expert_count": 4, "expert_used_count": [1, 2, 3, 5]}, "found 5 used"),
    ],
)
def test_wrong_values(keys, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        load(keys("llama", values), nextn_present=False)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["block_count", "context_length", "embedding_length", "attention.head_count"])
def test_missing_keys_are_named(keys, name: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        load(keys("llama", {}, without=(name,)), nextn_present=False)
    assert f"llama.{name}" in str(caught.value)


def test_recurrent_models_need_no_heads(keys) -> None:
    hp = load(keys("mamba2", {}, without=("attention.head_count", "attention.head_count_kv")), nextn_present=False)
    assert (hp.n_head, hp.head_k) == ((0,) * 4, 0)
