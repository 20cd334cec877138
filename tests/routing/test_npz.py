"""Hostile .npz recordings: each is refused in words, and before it costs memory or time."""

from __future__ import annotations

import bz2
import io
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time

import numpy as np
import pytest

from planner.errors import RoutingFileError
from planner.facts.model import Model
from planner.facts.routing import Routing
from planner.routing import analysis, npz
from planner.routing.analysis import analyse, replay_notes
from planner.routing.load import load
from planner.routing.selections import phase_of
from tests.builders import make_model

GOOD = np.tile(np.array([[0, 1]], np.uint16), (3, 4, 1))


@pytest.fixture
def model() -> Model:
    """Four layers of 8 experts, 2 per token."""
    return make_model()


def member(header: bytes, values: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header + values


def header(kind: str, shape: str) -> bytes:
    return f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return file.getvalue()


def saved(**arrays: object) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def refusal(folder: Path, data: bytes, model: Model) -> str:
    path = folder / "hostile.npz"
    path.write_bytes(data)
    with pytest.raises(RoutingFileError) as caught:
        load(str(path), model)
    assert caught.value.subject == str(path) and caught.value.expected and caught.value.found
    assert str(caught.value).isprintable()
    return str(caught.value)


@contextmanager
def cheap() -> Iterator[None]:
    """At most 32 MiB and two seconds."""
    tracemalloc.start()
    begin = process_time()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
        assert process_time() - begin < 2
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"n_expert": np.array(1 << 27)}, "8 experts per layer"),
        ({"n_expert": np.array(1 << 40)}, "8 experts per layer"),
        ({"n_expert": np.array(-1)}, "8 experts per layer"),
        ({"n_expert": np.array([8, 8])}, "one number as n_expert"),
        ({"n_used": np.array(9)}, "found 9 of 8"),
        ({"n_used": np.array(0)}, "found 0 of 8"),
        ({"layers": np.arange(5)}, "at most 4 layers"),
        ({"decode": np.zeros((1, 4, 9), np.uint16)}, "at most 8 experts per token"),
        ({"decode": np.zeros((1, 5, 2), np.uint16)}, "at most 4 layers"),
        ({"decode": np.zeros((1, 4, 2, 2), np.uint16)}, "decode with the header"),
        ({"decode_counts": np.full((4, 8), 2**64 - 1, np.uint64)}, "decode counts from 0"),
        ({"decode_counts": np.full((4, 8), 2**62, np.int64)}, "decode counts from 0"),
        ({"decode_counts": np.full((4, 8), -1, np.int64)}, "decode counts from 0"),
        ({"decode_counts": np.ones(8, np.int64)}, "at most 4 layers"),
    ],
)
def test_what_does_not_fit_the_model(tmp_path: Path, model: Model, arrays: dict[str, object], words: str) -> None:
    if "decode_counts" not in arrays:
        arrays = {"decode": GOOD, **arrays}
    data = saved(**arrays)
    with cheap():
        assert words in refusal(tmp_path, data, model)


@pytest.mark.parametrize(
    "text",
    [
        b"{'descr': (",
        b"{[]:3}",
        b"{1:2,'a':3}",
        b"{'descr': (), 'fortran_order': False, 'shape': (3, 4, 2), }",
        b"-" * 900,
        b"-" * 9000,
        b"",
        b"\x1b[2J\xff",
        header("<u3", "(3, 4, 2)"),
        header("<U99999", "()"),
        header("|O", "(3, 4, 2)"),
        header("<u2", "(3, -4, 2)"),
        header("<u2", "(9999999999999, 4, 2)"),
        header("<u2", "(3, 4, 2)").replace(b"False", b"True"),
    ],
)
def test_headers_that_are_none(tmp_path: Path, model: Model, text: bytes) -> None:
    with cheap():
        assert "found decode" in refusal(tmp_path, zipped({"decode": member(text, GOOD.tobytes())}), model)


def test_an_array_that_claims_more_or_less_than_it_holds(tmp_path: Path, model: Model) -> None:
    for shape in ("(99999999, 4, 2)", "(2, 4, 2)", "(999999999999, 999999999999, 999999999999)"):
        data = zipped({"decode": member(header("<u2", shape), GOOD.tobytes())})
        with cheap():
            assert f"in {len(member(header('<u2', shape))) + GOOD.nbytes} bytes" in refusal(tmp_path, data, model)
    good = zipped({"decode": member(header("<u2", "(3, 4, 2)"), GOOD.tobytes())}, zipfile.ZIP_STORED)
    for cut in range(4, len(good), 7):
        refusal(tmp_path, good[:cut], model)
    for place in range(30, len(good) - 22):
        path = tmp_path / "changed.npz"
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x41]) + good[place + 1 :])
        try:
            load(str(path), model)
        except RoutingFileError:
            continue


def test_bombs_are_not_unpacked(tmp_path: Path, model: Model) -> None:
    """Zeros pack a thousand times: what a member claims is held against the model first."""
    wide = member(header("<u2", "(16384, 4, 1000)"), bytes(2 * 16384 * 4 * 1000))
    long = member(header("<u1", "(12500000, 4, 2)"), bytes(100_000_000))
    for name, data, words in (("a", wide, "at most 8 experts"), ("b", long, "at most 50000000 selections")):
        packed = zipped({"decode": data})
        assert len(packed) < 1 << 20, name
        with cheap():
            assert words in refusal(tmp_path, packed, model)


def test_too_much_in_all(tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    data = zipped({name: member(header("<u2", "(3, 4, 2)"), GOOD.tobytes()) for name in ("decode", "prefill")})
    monkeypatch.setattr(npz, "MOST_BYTES", 200)
    assert "more than 200 bytes" in refusal(tmp_path, data, model)


def test_a_directory_without_end(tmp_path: Path, model: Model) -> None:
    data = zipped({f"key{i}": b"" for i in range(npz.MOST_MEMBERS + 1)})
    assert "more than 64 arrays" in refusal(tmp_path, data, model)


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_are_refused_sound_or_not(tmp_path: Path, model: Model, method: int) -> None:
    data = zipped({"decode": member(header("<u2", "(3, 4, 2)"), GOOD.tobytes())}, method)
    start = data.index(b"decode.npy") + len("decode.npy")
    assert method != zipfile.ZIP_BZIP2 or bz2.decompress(data[start : data.index(b"PK\x01\x02")])
    for broken in (data, data[: start + 8] + b"\xff" * 20 + data[start + 28 :]):
        assert "another method than deflate" in refusal(tmp_path, broken, model)


def test_a_broken_stream(tmp_path: Path, model: Model) -> None:
    data = zipped({"decode": member(header("<u2", "(3, 4, 2)"), GOOD.tobytes())})
    start = data.index(b"decode.npy") + len("decode.npy")
    refusal(tmp_path, data[:start] + b"\xff" * 20 + data[start + 20 :], model)


@pytest.mark.parametrize("point", [0x110000, 0xFFFFFFFF, 0xD800])
def test_code_points_that_are_none(tmp_path: Path, model: Model, point: int) -> None:
    word = member(header("<U1", "()"), struct.pack("<I", point))
    refusal(tmp_path, zipped({"text": word, "decode": member(header("<u2", "(3, 4, 2)"), GOOD.tobytes())}), model)


def test_words_cannot_steer_a_terminal(tmp_path: Path, model: Model) -> None:
    path = tmp_path / "file.npz"
    path.write_bytes(saved(decode=GOOD, text=np.array("\x1b[2J"), method=np.array("\u202ex")))
    found = load(str(path), model)
    assert found.text.isprintable() and found.method.isprintable()


def test_two_members_of_a_name(tmp_path: Path, model: Model) -> None:
    whole = member(header("<u2", "(3, 4, 2)"), GOOD.tobytes())
    with pytest.warns(UserWarning, match="Duplicate"):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("decode.npy", whole)
            archive.writestr("decode.npy", whole)
    assert "decode twice" in refusal(tmp_path, file.getvalue(), model)


def test_numbers_of_any_width_and_order(tmp_path: Path, model: Model) -> None:
    path = tmp_path / "file.npz"
    for kind in ("<u2", ">u2", "u1", "<i8", ">i4"):
        path.write_bytes(saved(decode=GOOD.astype(kind), text=np.array("\u00fc").astype(">U4")))
        found = load(str(path), model)
        assert found.decode == phase_of(GOOD, 8) and found.text == "\u00fc"


def test_counting_goes_block_by_block() -> None:
    random = np.random.default_rng(1)
    ids = random.integers(0, 8, (400_000, 2, 2)).astype(np.uint16)
    ids[::3, 1] = 0xFFFF
    phase = phase_of(ids, 8)
    assert phase is not None
    for row in range(2):
        routed = ids[:, row][ids[:, row] != 0xFFFF]
        assert phase.counts[row] == tuple(np.bincount(routed, minlength=8))


def test_the_replay_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many slots as experts: a thousand tokens of that would be replayed for minutes in a large model."""
    ids = np.tile(np.arange(64, dtype=np.uint16), (1100, 2, 1))
    ids[:100] = 0
    wide = Routing("made", "by hand", (0, 1), 64, 64, None, phase_of(ids, 64))
    assert replay_notes(wide) == ("reuse and hit rates are from the first 1,024 of 1,100 tokens of the recording",)
    assert dict(analyse(wide, (1, 1), every_policy=False).overlap)[1] == pytest.approx(1 - 63 / 64 / 1023)
    monkeypatch.setattr(analysis, "MOST_LOOKUPS", 100 * 2 * 64)
    assert replay_notes(wide) == ("reuse and hit rates are from the first 100 of 1,100 tokens of the recording",)
    assert dict(analyse(wide, (1, 1), every_policy=False).overlap)[1] == 1
    narrow = Routing("made", "by hand", (0,), 8, 2, None, phase_of(GOOD[:, :1], 8))
    assert replay_notes(narrow) == ()
