"""Route traces as text: BigMoeOnEdge's ``--route-trace``, one row per selection.

``# …`` lines, a header ``turn,phase,step,layer,slot,expert,weight,residency,expert_bytes``, then rows; phase 0 is
prefill and 1 decode, step the position in the context (docs of Helldez/BigMoeOnEdge). Only phase, step, layer, slot
and expert are needed; turns follow each other.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Final

from planner.errors import RoutingFileError
from planner.facts.routing import NOT_ROUTED, Routing
from planner.routing.selections import phase_of

if TYPE_CHECKING:
    import numpy as np

NEEDED: Final = ("phase", "step", "layer", "slot", "expert")
MOST_BYTES: Final = 64 << 20
MOST_LINES: Final = 2_000_000
"""About what ``MOST_BYTES`` holds of real traces, 35 bytes a row; read in seconds."""
LONGEST_LINE: Final = 1024
LONGEST_HEAD: Final = 1 << 20
"""Bytes within which the names of the columns are."""
_MOST: Final = {"phase": 1, "step": 1 << 31, "layer": 4095, "slot": 255, "expert": NOT_ROUTED - 1, "turn": 1 << 20}


def parse(data: bytes, subject: str, n_expert: int) -> Routing:
    """A trace as a recording.

    Args:
        n_expert: of the model it belongs to; a trace does not say.

    Raises:
        RoutingFileError: no such trace, or a row that is none; its number is in the message.
    """
    import numpy as np

    if len(data) > MOST_BYTES:
        raise RoutingFileError(subject, expected=f"a route trace of at most {MOST_BYTES} bytes", found=str(len(data)))
    names, first = _header(data, subject)
    values = array("q")
    for one in _rows(data, names, first, subject):
        values.extend(one)
    if not values:
        raise RoutingFileError(subject, expected="rows after the header", found="none")
    rows = np.frombuffer(values, np.int64).reshape(-1, 6)
    layers, row = np.unique(rows[:, 3], return_inverse=True)
    n_used = int(rows[:, 4].max()) + 1
    if int(rows[:, 5].max()) >= n_expert:
        found = f"expert {int(rows[:, 5].max())}"
        raise RoutingFileError(subject, expected=f"experts below {n_expert}, as the model has them", found=found)
    phases = (
        _sequence(rows[rows[:, 1] == phase], row[rows[:, 1] == phase], len(layers), n_used, subject) for phase in (0, 1)
    )
    prefill, decode = (None if found is None else phase_of(found, n_expert) for found in phases)
    blocks = tuple(int(layer) for layer in layers)
    return Routing(subject, "route trace", blocks, n_expert, n_used, prefill, decode)


def _header(data: bytes, subject: str) -> tuple[list[str], int]:
    """Names of the columns, and where the first row begins."""
    start = 0
    while start < min(len(data), LONGEST_HEAD):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        line = data[start:end].strip()
        if line and not line.startswith(b"#"):
            names = [name.strip() for name in line[:LONGEST_LINE].decode("utf-8", "replace").split(",")]
            if set(NEEDED) <= set(names):
                return names, end + 1
            break
        start = end + 1
    raise RoutingFileError(
        subject, expected=f"a route trace with the columns {', '.join(NEEDED)}", found="a text without them"
    )


def _rows(data: bytes, names: list[str], start: int, subject: str) -> Iterator[tuple[int, ...]]:
    """``(turn, phase, step, layer, slot, expert)``."""
    wanted = [names.index(name) if name in names else None for name in ("turn", *NEEDED)]
    limits = [_MOST[name] for name in ("turn", *NEEDED)]
    lines = BytesIO(data)
    lines.seek(start)
    for number, line in enumerate(lines, data.count(b"\n", 0, start) + 1):
        if number > MOST_LINES:
            raise RoutingFileError(subject, expected=f"at most {MOST_LINES:,} lines", found="more")
        if not line.strip() or line.startswith((b"#", b"turn,")):
            continue
        if len(line) > LONGEST_LINE:
            raise _bad(subject, number)
        parts = line.split(b",")
        try:
            values = tuple(0 if at is None else int(parts[at]) for at in wanted)
        except (ValueError, IndexError):
            raise _bad(subject, number) from None
        if not all(0 <= value <= most for value, most in zip(values, limits, strict=True)):
            raise _bad(subject, number)
        yield values


def _bad(subject: str, number: int) -> RoutingFileError:
    return RoutingFileError(subject, expected=f"whole numbers in {', '.join(NEEDED)}", found=f"line {number}")


def _sequence(rows: np.ndarray, row: np.ndarray, n_rows: int, n_used: int, subject: str) -> np.ndarray | None:
    """``[token, layer row, slot]`` in the order of turns and steps; None without rows."""
    import numpy as np

    if not len(rows):
        return None
    position = rows[:, 0] * (_MOST["step"] + 1) + rows[:, 2]
    tokens, token = np.unique(position, return_inverse=True)
    if len(tokens) * n_rows * n_used > 8 * len(rows) + (1 << 20):
        raise RoutingFileError(subject, expected="most layers and slots of each token", found="a few of them")
    found = np.full((len(tokens), n_rows, n_used), NOT_ROUTED, np.uint16)
    found[token, row, rows[:, 4]] = rows[:, 5]
    return found
