"""Weight placement of hand-made models: 4 blocks of 393,216 B attention, 4,096 B router, 1,572,864 B experts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.layout import layer_devices, spans
from planner.cost.tape import HOST
from planner.cost.weights import WeightTable
from planner.facts.model import Model, Role, Tensor
from planner.plans.memory import total
from tests.builders import make_layer, make_model

EXPERTS, DENSE, VOCAB = 3 * 524_288, 393_216 + 4_096, 512_000


def layout(n_layer: int, n_gpu_layers: int, *devices: str) -> tuple[object, ...]:
    return spans(layer_devices(n_layer, n_gpu_layers, devices, (1.0,) * len(devices)))


def placed(model: Model, n_gpu_layers: int, n_cpu_moe: int, *devices: str, **kw: object) -> dict[str, int]:
    result = WeightTable(model, **kw).place(layout(model.n_layer, n_gpu_layers, *devices), n_cpu_moe)  # type: ignore[arg-type]
    return {device: result.total(device) for device in (HOST, *devices)}


def test_everything_on_one_device_but_the_embedding() -> None:
    assert placed(make_model(), 99, 0, "CUDA0") == {HOST: VOCAB, "CUDA0": 4 * (EXPERTS + DENSE) + VOCAB}


def test_n_cpu_moe_takes_the_first_blocks() -> None:
    assert placed(make_model(), 99, 3, "CUDA0") == {HOST: VOCAB + 3 * EXPERTS, "CUDA0": 4 * DENSE + EXPERTS + VOCAB}


def test_n_cpu_moe_beyond_the_blocks_is_all() -> None:
    assert placed(make_model(), 99, 4, "CUDA0") == placed(make_model(), 99, 77, "CUDA0")


def test_a_tied_head_is_placed_twice() -> None:
    tied = placed(make_model(tied=True), 99, 0, "CUDA0")
    assert tied == {HOST: VOCAB, "CUDA0": 4 * (EXPERTS + DENSE) + VOCAB}
    assert placed(make_model(tied=True), 0, 0) == {HOST: VOCAB + 4 * (EXPERTS + DENSE)}


@pytest.mark.parametrize(("arch", "copies"), [("qwen3moe", 1), ("gemma4", 2)])
def test_a_tied_head_where_the_embedding_is_is_no_copy_but_for_gemma(arch: str, copies: int) -> None:
    # llama-fit-params b11549, gemma-4-26b-a4b: 13,969 MiB with -ngl 0, of which 2 x 396 MiB are the embedding
    model = make_model(tied=True, arch=arch)
    assert placed(model, 0, 0)[HOST] == copies * VOCAB + 4 * (EXPERTS + DENSE)
    moved = placed(model, 99, 0, "CUDA0", overrides=(("token_embd", "CUDA0"),))
    assert moved == {HOST: 0, "CUDA0": copies * VOCAB + 4 * (EXPERTS + DENSE)}


def test_the_first_override_wins_over_the_second_and_over_n_cpu_moe() -> None:
    overrides = ((r"blk\.0\.ffn_up_exps", "CUDA0"), (r"exps", HOST))
    found = placed(make_model(), 99, 4, "CUDA0", overrides=overrides)
    assert found["CUDA0"] == 4 * DENSE + 524_288 + VOCAB


def test_overrides_search_anywhere_in_the_name() -> None:
    found = placed(make_model(), 99, 0, "CUDA0", overrides=(("ffn_(gate|up)_exps", HOST),))
    assert found[HOST] == VOCAB + 4 * 2 * 524_288


def test_biases_move_with_their_experts() -> None:
    bias = Tensor("blk.1.ffn_up_exps.bias", "F32", (128, 8), 4096, 1, Role.EXPERT)
    model = make_model()
    model = make_model(tensors=(*model.tensors, bias))
    assert placed(model, 99, 2, "CUDA0")[HOST] == VOCAB + 2 * EXPERTS + 4096


def test_shared_experts_and_routers_stay() -> None:
    shared = Tensor("blk.1.ffn_up_shexp.weight", "F16", (256, 128), 65_536, 1, Role.SHARED_EXPERT)
    model = make_model()
    model = make_model(tensors=(*model.tensors, shared))
    assert placed(model, 99, 4, "CUDA0")["CUDA0"] == 4 * DENSE + 65_536 + VOCAB


def test_prediction_blocks_are_skipped_unless_asked_for() -> None:
    layers = (*(make_layer(i) for i in range(3)), make_layer(3, nextn=True))
    model = make_model(layers=layers)
    assert placed(model, 99, 0, "CUDA0")["CUDA0"] == 3 * (EXPERTS + DENSE) + VOCAB
    assert placed(model, 99, 0, "CUDA0", nextn=True)["CUDA0"] == 4 * (EXPERTS + DENSE) + VOCAB


def test_large_lookup_tables_are_lazy_and_small_ones_are_not() -> None:
    def with_table(n_bytes: int) -> WeightTable:
        table = Tensor("per_layer_token_embd.weight", "Q8_0", (256, 1000), n_bytes, None, Role.LOOKUP)
        return WeightTable(make_model(tensors=(*make_model().tensors, table)))

    small = with_table(4 << 30).place(layout(4, 99, "CUDA0"), 0)  # type: ignore[arg-type]
    assert (small.lazy, small.total(HOST)) == (0, VOCAB + (4 << 30))
    large = with_table((4 << 30) + 1).place(layout(4, 99, "CUDA0"), 0)  # type: ignore[arg-type]
    assert (large.lazy, large.total(HOST)) == ((4 << 30) + 1, VOCAB)


def test_terms_sum_to_the_device_and_name_roles() -> None:
    result = WeightTable(make_model()).place(layout(4, 99, "CUDA0"), 2)  # type: ignore[arg-type]
    terms = result.terms("CUDA0")
    assert total(terms) == result.total("CUDA0")
    assert [t.name for t in terms] == ["weights expert", "weights attention", "weights output", "weights router"]


def test_expert_and_dense_bytes_of_a_block() -> None:
    table = WeightTable(make_model())
    assert (table.expert_bytes(2), table.dense_bytes(2)) == (EXPERTS, DENSE)


@given(n_gpu_layers=st.integers(0, 8), n_cpu_moe=st.integers(0, 8), n_devices=st.integers(1, 3))
def test_nothing_is_lost_or_counted_twice(n_gpu_layers: int, n_cpu_moe: int, n_devices: int) -> None:
    model = make_model(6)
    devices = tuple(f"CUDA{i}" for i in range(n_devices))
    assert sum(placed(model, n_gpu_layers, n_cpu_moe, *devices).values()) == model.file_bytes


@pytest.mark.parametrize("n_cpu_moe", range(5))
def test_weights_that_are_not_with_their_block(n_cpu_moe: int) -> None:
    table = WeightTable(make_model(), ((r"blk\.0\.attn_q\.", "CPU"),))
    named = [dict(table.elsewhere(i, "CUDA0", n_cpu_moe)) for i in range(4)]
    assert ["ffn_up_exps" in n for n in named] == [i < n_cpu_moe for i in range(4)]
    assert ["attn_q" in n for n in named] == [True, False, False, False]
    assert {device for n in named for device in n.values()} <= {"CPU"}
    assert table.elsewhere(1, "CPU", n_cpu_moe) == ()
