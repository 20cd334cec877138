"""Split models, written by hand and by llama.cpp's own splitter."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from planner.errors import ModelFileError
from planner.gguf.analyze import analyze
from planner.gguf.shards import read_model

U16, I32 = 2, 5


def shard(raw, no: int, count: int = 3, total: int = 6, names: tuple[str, ...] = ()):
    model = raw()
    if no == 0:
        model.string("general.architecture", "llama")
        for key in ("block_count", "context_length", "embedding_length", "attention.head_count"):
            model.u32(f"llama.{key}", 4)
    model.key("split.no", U16, struct.pack("<H", no)).key("split.count", U16, struct.pack("<H", count))
    model.key("split.tensors.count", I32, struct.pack("<i", total))
    for name in names or (f"blk.{no}.attn_q.weight", f"blk.{no}.attn_k.weight"):
        model.tensor(name, (4,))
    return model


def write(raw, folder: Path, **changes) -> list[str]:
    return [shard(raw, no, **changes).write(folder / f"big model-{no + 1:05d}-of-00003.gguf") for no in range(3)]


def test_any_shard_finds_the_others(raw, tmp_path: Path) -> None:
    paths = write(raw, tmp_path)
    models = [analyze(path) for path in paths]
    for model in models:
        assert model.path == paths[0]
        assert model.shards == tuple(paths)
        assert len(model.tensors) == 6
        assert model.file_bytes == sum(Path(p).stat().st_size for p in paths)
    assert len({m.fingerprint for m in models}) == 1


def test_relative_paths(raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(raw, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert read_model("big model-00002-of-00003.gguf").paths[0] == "big model-00001-of-00003.gguf"


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_the_missing_shard_is_named(raw, tmp_path: Path, gone: int) -> None:
    paths = write(raw, tmp_path)
    Path(paths[gone]).unlink()
    for path in paths:
        if path != paths[gone]:
            with pytest.raises(ModelFileError) as caught:
                analyze(path)
            assert caught.value.subject == paths[gone]
            assert caught.value.expected == f"shard {gone + 1} of 3"


def test_a_lone_file_named_like_a_shard(moe, tmp_path: Path) -> None:
    path = moe().write(tmp_path / "m-00001-of-00002.gguf")
    with pytest.raises(ModelFileError) as caught:
        analyze(path)
    assert caught.value.subject == str(tmp_path / "m-00002-of-00002.gguf")
    moe().write(tmp_path / "m-00002-of-00002.gguf")
    with pytest.raises(ModelFileError, match=r"split\.no 0 and split\.count 2"):
        analyze(path)
    assert analyze(moe().write(tmp_path / "m-00001-of-00001.gguf")).n_layer == 2


def refused(path: str) -> str:
    with pytest.raises(ModelFileError) as caught:
        analyze(path)
    return str(caught.value)


def test_a_renamed_shard(raw, tmp_path: Path) -> None:
    paths = write(raw, tmp_path)
    alone = Path(paths[0]).rename(tmp_path / "model.gguf")
    assert "a name like model-00001-of-00003.gguf" in refused(str(alone))


def test_shards_in_the_wrong_order(raw, tmp_path: Path) -> None:
    paths = write(raw, tmp_path)
    Path(paths[0]).rename(tmp_path / "x")
    Path(paths[1]).rename(paths[0])
    (tmp_path / "x").rename(paths[1])
    assert "expected split.no 0 and split.count 3, as its name says, found 1 and 3" in refused(paths[2])


def test_counts_and_duplicates_over_shards(raw, tmp_path: Path) -> None:
    assert "expected 7 tensors in 3 shards, found 6" in refused(write(raw, tmp_path, total=7)[1])
    paths = write(raw, tmp_path, total=3, names=("blk.0.attn_q.weight",))
    assert "blk.0.attn_q.weight in two" in refused(paths[0])
    assert "split.count 3" in refused(write(raw, tmp_path, count=4)[0])


@pytest.mark.parametrize("name", ["m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-00001-of-99999.gguf"])
def test_impossible_numbers(moe, tmp_path: Path, name: str) -> None:
    assert "a shard number within its count" in refused(moe().write(tmp_path / name))


def test_a_damaged_shard_is_the_one_blamed(raw, tmp_path: Path) -> None:
    paths = write(raw, tmp_path)
    Path(paths[1]).write_bytes(Path(paths[1]).read_bytes()[:-64])
    message = refused(paths[0])
    assert paths[1] in message
    assert "bytes are missing" in message


def test_what_llama_gguf_split_writes(engine: Path, random_demo, tmp_path: Path) -> None:
    program = engine / "llama-gguf-split"
    if not program.exists():
        pytest.skip("this llama.cpp comes without llama-gguf-split")
    whole = analyze(str(random_demo.path))
    per_shard = -(-len(whole.tensors) // 3)
    command = [program, "--split", "--split-max-tensors", str(per_shard), random_demo.path, tmp_path / "s"]
    subprocess.run(command, check=True, capture_output=True, env={"LD_LIBRARY_PATH": str(engine)})
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [f"s-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    for name in names:
        model = analyze(str(tmp_path / name))
        assert model.path == str(tmp_path / names[0])
        assert set(model.tensors) == set(whole.tensors)
        assert model.layers == whole.layers
