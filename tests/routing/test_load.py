"""Files of routing statistics: every form that is read, and what is refused with its reason."""

from __future__ import annotations

import io
import struct
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from planner.demo import layout
from planner.errors import MoeplanError, RoutingFileError
from planner.facts.model import Model
from planner.facts.routing import Policy, Routing
from planner.routing import stored, trace_csv
from planner.routing.analysis import analyse
from planner.routing.load import load
from planner.routing.selections import phase_of
from planner.routing.shape import notes, shape_of
from tests.builders import make_model

HEADER = "# route_trace v1\nturn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"


@pytest.fixture
def model() -> Model:
    """Four layers of 8 experts, 2 per token."""
    return make_model()


def imatrix(counts: dict[str, Sequence[float]], kind: str = "imatrix") -> bytes:
    """A GGUF as llama-imatrix writes it, without the sums."""
    data = {f"{name}.counts": np.array(row, np.float32) for name, row in counts.items()}
    table = [(name, (1, len(row)), layout.F32, row.nbytes) for name, row in data.items()]
    pairs = [layout.pair("general.type", kind), layout.pair("imatrix.chunk_count", 3)]
    head = layout.header([*pairs, layout.pair("imatrix.chunk_size", 512)], table)
    return head + b"".join(row.tobytes().ljust(layout.padded(row.nbytes), b"\0") for row in data.values())


def written(folder: Path, data: bytes | str, name: str = "file") -> str:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


def test_imatrix(tmp_path: Path, model: Model) -> None:
    row = [10, 0, 3, 3, 1, 1, 2, 0]
    names = [f"blk.{i}.ffn_{part}_exps.weight" for i in range(4) for part in ("gate", "up", "down")]
    counts: dict[str, Sequence[float]] = {name: row for name in names}
    found = load(written(tmp_path, imatrix(counts | {"blk.0.attn_q.weight": [40.0]})), model)
    assert found.layers == (0, 1, 2, 3)
    assert found.prefill is not None and found.prefill.n_tokens == 10
    assert set(found.prefill.counts) == {tuple(row)}
    assert found.decode is None and "3 chunks of 512" in found.method
    assert analyse(found, shape_of(model).expert_bytes).layers[0].touched == 6


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (imatrix({"blk.0.attn_q.weight": [40.0]}), "counts of routed experts"),
        (imatrix({"blk.0.ffn_up_exps.weight": [1.0] * 8}, kind="model"), "importance matrix"),
        (imatrix({"blk.0.ffn_up_exps.weight": [1.0] * 4}), "8 experts per layer"),
        (imatrix({"blk.9.ffn_up_exps.weight": [1.0] * 8}), "layer [9]"),
        (imatrix({"blk.0.ffn_up_exps.weight": [0.5] * 8}), "whole numbers"),
        (imatrix({"blk.0.ffn_up_exps.weight": [float("nan")] * 8}), "whole numbers"),
        (imatrix({"blk.0.ffn_up_exps.weight": [0.0] * 8}), "others"),
        (
            imatrix({"blk.0.ffn_up_exps.weight": [1.0] * 8, "blk.0.ffn_down_exps.weight": [2.0] * 8}),
            "same counts for every matrix",
        ),
        (struct.pack("<ii", 400, 24) + b"blk.0.ffn_up_exps.weight", "legacy imatrix (.dat)"),
        (b"", "route trace"),
        (b"just words\n", "route trace"),
        (HEADER.encode(), "rows after the header"),
        ((HEADER + "0,1,0,0,0,8,1.0,1,0\n").encode(), "expert 8"),
        ((HEADER + "0,1,0,0,0,x,1.0,1,0\n").encode(), "line 3"),
        ((HEADER + "0,1,0,0\n").encode(), "line 3"),
        ((HEADER + "0,2,0,0,0,1,1.0,1,0\n").encode(), "line 3"),
        ((HEADER + "0,1,0,7,0,1,1.0,1,0\n").encode(), "layer [7]"),
        ((HEADER + "0,1,99999999999,0,0,1,1.0,1,0\n").encode(), "line 3"),
        (b"PK\x03\x04 and nothing else", "not a zip file"),
    ],
)
def test_refused_with_the_reason(tmp_path: Path, model: Model, data: bytes, words: str) -> None:
    with pytest.raises(RoutingFileError) as caught:
        load(written(tmp_path, data), model)
    assert words in str(caught.value)


def test_a_gguf_that_is_none(tmp_path: Path, model: Model) -> None:
    with pytest.raises(MoeplanError):
        load(written(tmp_path, b"GGUF" + bytes(40)), model)


def test_no_file(tmp_path: Path, model: Model) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(RoutingFileError):
            load(str(path), model)


def test_a_dense_model_has_no_routing(tmp_path: Path, model: Model) -> None:
    dense = Model(**{**{f: getattr(model, f) for f in model.__dataclass_fields__}, "tensors": ()})
    with pytest.raises(RoutingFileError, match="without routed experts"):
        load(written(tmp_path, b"x"), dense)


def test_route_trace(tmp_path: Path, model: Model) -> None:
    """Prefill reaches the last layer with its last token only; decode follows, in the order of slots."""
    rows = ["0,0,0,0,0,3,0.5,0,1", "0,0,0,0,1,4,0.5,0,1", "0,0,1,0,1,5,0.5,0,1", "0,0,1,0,0,3,0.5,0,1"]
    rows += ["0,0,1,3,0,7,0.5,0,1", "0,0,1,3,1,6,nan,0,1"]
    rows += [f"0,1,{step},{layer},{slot},{slot},1,1,0" for step in (2, 3) for layer in (0, 3) for slot in (0, 1)]
    found = load(written(tmp_path, HEADER + "\n".join(rows) + "\n"), model)
    assert (found.layers, found.n_used) == ((0, 3), 2)
    assert found.prefill is not None and found.prefill.counts[0] == (0, 0, 0, 2, 1, 1, 0, 0)
    assert found.prefill.counts[1] == (0, 0, 0, 0, 0, 0, 1, 1)
    assert found.decode is not None and found.decode.counts[0] == (2, 2, 0, 0, 0, 0, 0, 0)
    assert notes(found, shape_of(model)) == ("2 of 4 layers with experts are not in the recording",)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (HEADER.encode() + b"\n" * trace_csv.MOST_LINES, "at most 2,000,000 lines"),
        (HEADER.encode() + b"," * 4_000_000, "line 3"),
        (HEADER.encode() + b"0,1,0,0,0,1,1.0,1," + b"0" * 2000, "line 3"),
        (b"#\n" * trace_csv.LONGEST_HEAD, "a text without them"),
        (b"," * 4_000_000, "a text without them"),
    ],
)
def test_traces_without_end(tmp_path: Path, model: Model, data: bytes, words: str) -> None:
    path = written(tmp_path, data)
    tracemalloc.start()
    try:
        with pytest.raises(RoutingFileError, match=words):
            load(path, model)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(data) + (1 << 20)
    finally:
        tracemalloc.stop()


def test_a_trace_too_large_to_be_read(tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_csv, "MOST_BYTES", 100)
    with pytest.raises(RoutingFileError, match="at most 100 bytes"):
        load(written(tmp_path, HEADER + "0,1,0,0,0,1,1.0,1,0\n" * 10), model)


def recorded(fingerprint: str = "") -> Routing:
    random = np.random.default_rng(1)
    prefill, decode = (random.permuted(np.tile(np.arange(8), (n, 4, 1)), axis=2)[..., :2] for n in (40, 50))
    phases = phase_of(prefill.astype(np.uint16), 8), phase_of(decode.astype(np.uint16), 8)
    return Routing("made", "by hand", (0, 1, 2, 3), 8, 2, *phases, fingerprint=fingerprint, text="some text")


def test_stored_form_comes_back(tmp_path: Path, model: Model) -> None:
    routing = recorded(model.fingerprint)
    path = written(tmp_path, stored.dump(routing))
    found = load(path, model)
    assert found == Routing(**{**{f: getattr(routing, f) for f in routing.__dataclass_fields__}, "source": path})
    assert stored.dump(routing) == stored.dump(routing)


def test_stored_for_another_model(tmp_path: Path, model: Model) -> None:
    with pytest.raises(RoutingFileError, match="fingerprint"):
        load(written(tmp_path, stored.dump(recorded("f" * 16))), model)


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (npz(decode=np.zeros((3, 5, 2), np.uint16)), "4 layers with experts, found 5"),
        (npz(decode=np.full((3, 4, 2), 8, np.uint16)), "decode or prefill selections, found neither"),
        (npz(decode=np.zeros((3, 4, 2), np.float32)), "decode as f4"),
        (npz(other=np.zeros(3)), "neither"),
        (npz(decode_counts=np.ones((4, 9), np.uint16)), "of 8"),
        (npz(schema=np.array("moeplan.routing/9"), decode=np.zeros((3, 4, 2), np.uint16)), "moeplan.routing/1"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, model: Model, data: bytes, words: str) -> None:
    with pytest.raises(RoutingFileError) as caught:
        load(written(tmp_path, data), model)
    assert words in str(caught.value)


def test_shared_traces_are_read_as_they_are(shared: Path, tmp_path: Path) -> None:
    """Layers and experts come from the model; the counts-only form is read, too."""
    layers = 30
    from tests.builders import block_tensors, make_layer

    blocks = tuple(make_layer(i, n_expert_used=6) for i in range(layers))
    tensors = tuple(t for i in range(layers) for t in block_tensors(i, 128))
    model = make_model(layers=blocks, n_expert=128, n_expert_used=6, tensors=tensors)
    whole = load(str(shared / "traces" / "gemma.seq.npz"), model)
    counts = load(str(shared / "traces" / "gemma.counts.npz"), model)
    assert whole.decode is not None and counts.decode is not None
    assert whole.decode.counts == counts.decode.counts
    assert counts.decode.sequence is None
    assert analyse(counts, shape_of(model).expert_bytes).curve(Policy.LFU) is None
