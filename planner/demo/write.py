"""Dense model → mixture-of-experts file, written beside its name and renamed when whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from planner.demo import dense, layout
from planner.errors import OutputError
from planner.units import size

TALKING: Final = "moeplan-demo.gguf"
RANDOM: Final = "moeplan-demo-random.gguf"
_TALKING_EXPERTS, _RANDOM_EXPERTS, _USED = 16, 8, 2
_SPARE_BYTES: Final = 64 << 20
_SEED: Final = 3


@dataclass(frozen=True, slots=True)
class DemoModel:
    """The file that is there now.

    Args:
        talks: it answers in words; otherwise its weights are random.
        written: False when the same demo was already there.
    """

    path: str
    talks: bool
    n_bytes: int
    n_expert: int
    n_expert_used: int
    written: bool


def write(folder: Path) -> DemoModel:
    """Write the demo into ``folder`` (made if missing): 846 MB with the ``demo`` extra, 7 MB without.

    Raises:
        OutputError: no space, no permission, or another file of that name; nothing is left behind.
    """
    source = dense.talking_source()
    model = dense.from_gguf(source) if source else dense.random()
    n_expert = _TALKING_EXPERTS if model.talks else _RANDOM_EXPERTS
    tensors = tuple(_mixture(model, n_expert))
    table = [(t.name, t.shape, t.type, t.data.nbytes * copies) for t, copies in tensors]
    head = layout.header(_metadata(model, n_expert), table)
    n_bytes = len(head) + sum(layout.padded(row[-1]) for row in table)
    path = folder / (TALKING if model.talks else RANDOM)
    try:
        there = _is_there(path, head, n_bytes)
        if not there:
            _write_file(path, head, tensors, n_bytes)
    except OSError as error:
        raise OutputError(str(path), found=error.strerror or str(error)) from error
    return DemoModel(str(path), model.talks, n_bytes, n_expert, _USED, not there)


def _mixture(model: dense.Dense, n_expert: int) -> Iterator[tuple[dense.Tensor, int]]:
    """Tensors of the mixture, each with how often its data is repeated."""
    import numpy as np

    rng = np.random.default_rng(_SEED)
    for tensor in model.tensors:
        part = tensor.name.split(".")[-2]
        if part not in ("ffn_gate", "ffn_up", "ffn_down"):
            yield tensor, 1
            continue
        name = tensor.name.replace(part, f"{part}_exps")
        yield dense.Tensor(name, (*tensor.shape, n_expert), tensor.type, tensor.data), n_expert
        if part == "ffn_gate":
            router = (rng.standard_normal((n_expert, model.n_embd)) * 0.3).astype(np.float32)
            name = tensor.name.replace(part, "ffn_gate_inp")
            yield dense.Tensor(name, (model.n_embd, n_expert), layout.F32, router), 1


def _metadata(model: dense.Dense, n_expert: int) -> list[bytes]:
    added: dict[str, layout.Value] = {
        "general.name": f"moeplan demo: {model.name}, {n_expert} experts",
        "llama.expert_count": n_expert,
        "llama.expert_used_count": _USED,
    }
    kept = [raw for key, raw in model.fields if key not in added]
    return kept + [layout.pair(key, value) for key, value in added.items()]


def _is_there(path: Path, head: bytes, n_bytes: int) -> bool:
    """True when ``path`` is this very demo; a file that is something else is an error."""
    if not path.exists():
        return False
    if path.is_file() and path.stat().st_size == n_bytes:
        with path.open("rb") as file:
            if file.read(len(head)) == head:
                return True
    raise OutputError(
        str(path),
        expected="no file, or the demo itself",
        found="another file of that name",
        advice="move it away or name another folder: moeplan demo DIR",
    )


def _write_file(path: Path, head: bytes, tensors: tuple[tuple[dense.Tensor, int], ...], n_bytes: int) -> None:
    import os
    import shutil
    import tempfile

    path.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path.parent).free
    if free < n_bytes + _SPARE_BYTES:
        raise OutputError(
            str(path.parent),
            expected=f"{size(n_bytes + _SPARE_BYTES)} of free space",
            found=size(free),
            advice="name a folder on another disk: moeplan demo DIR",
        )
    handle, part = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(head)
            for tensor, copies in tensors:
                for _ in range(copies):
                    file.write(tensor.data.data)
                total = tensor.data.nbytes * copies
                file.write(bytes(layout.padded(total) - total))
        os.chmod(part, 0o666 & ~_umask())
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def _umask() -> int:
    """The process's file creation mask, which ``mkstemp`` ignores."""
    import os

    mask = os.umask(0)
    os.umask(mask)
    return mask
