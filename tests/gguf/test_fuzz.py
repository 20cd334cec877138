"""Mutated headers give a ``Model`` or a ``ModelFileError``, never anything else."""

from __future__ import annotations

import json
import lzma
import struct
import tempfile
from functools import cache
from pathlib import Path
from time import perf_counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import ModelFileError
from planner.facts.model import Model
from planner.gguf.analyze import analyze

ARCHS = Path(__file__).parents[2] / ".." / "shared" / "zoo" / "archs"
EXTREMES = [0, 1, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 60, 1 << 63, (1 << 64) - 1]
EDIT = st.tuples(
    st.floats(0, 1, exclude_max=True),
    st.one_of(
        st.binary(min_size=1, max_size=4),
        st.sampled_from(EXTREMES).map(lambda n: struct.pack("<Q", n)),
        st.sampled_from(EXTREMES[:7]).map(lambda n: struct.pack("<I", n)),
    ),
    st.booleans(),
)


@cache
def real_headers() -> tuple[tuple[bytes, int], ...]:
    """(header, file length): llama.cpp's own test architectures where they are at hand."""
    if not (ARCHS / "index.json").exists():
        return ()
    index = json.loads((ARCHS / "index.json").read_text())
    return tuple(
        (lzma.decompress((ARCHS / f"{name}.head.xz").read_bytes()), size["file_bytes"])
        for name, size in sorted(index.items())
    )


def mutated(head: bytes, edits: list[tuple[float, bytes, bool]]) -> bytes:
    data = bytearray(head)
    for place, new, insert in edits:
        at = int(place * len(data))
        data[at : at if insert else at + len(new)] = new
    return bytes(data)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_mutation_is_told_or_read(moe, data: st.DataObject) -> None:
    bases = real_headers() or ((moe().header(), len(moe().data())),)
    head, size = data.draw(st.sampled_from(bases))
    edits = data.draw(st.lists(EDIT, max_size=4))
    length = data.draw(st.one_of(st.just(size), st.integers(0, size)))
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(mutated(head, edits))
        file.truncate(length)
        file.flush()
        start = perf_counter()
        try:
            model = analyze(file.name)
        except ModelFileError as error:
            assert str(error).isprintable()
        else:
            assert isinstance(model, Model)
            assert len(model.layers) == model.n_layer
            assert all(t.name.isprintable() for t in model.tensors)
            assert all(str(value).isprintable() for pair in model.metadata for value in pair)
        assert perf_counter() - start < 1
