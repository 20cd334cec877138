"""Arrays out of an untrusted ``.npz``: what every member claims is checked before any of them is unpacked.

An ``.npz`` is a zip file of ``.npy`` members, each a header in ASCII and the plain values (NumPy enhancement proposal
1). Only stored and deflated members, and headers as numpy writes them, are read: no evaluator sees the text.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from planner.errors import RoutingFileError
from planner.gguf.names import printable

if TYPE_CHECKING:
    import numpy as np

MOST_BYTES: Final = 256 << 20
"""Of all wanted arrays together, unpacked."""
MOST_MEMBERS: Final = 64
MOST_WORDS: Final = 4096
"""Characters of one text."""
EXPECTED: Final = "an .npz of route sequences or counts"
_ENTRY: Final = b"PK\x01\x02"
_MAGIC: Final = b"\x93NUMPY\x01\x00"
_LONGEST_HEADER: Final = 1024
_HEADER: Final = re.compile(
    rb"\{'descr': '([<>|=]?)([a-zA-Z])(\d{1,5})', 'fortran_order': False, "
    rb"'shape': \(((?:\d{1,12}(?:, ?|(?=\)))){0,3})\),? ?\}[ \n]*"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member's header says.

    Args:
        code: of the values: ``u``, ``i`` or ``U``, and ``f`` and others that are then refused.
        size: bytes of a value.
        start: bytes before the first value.
    """

    name: str
    order: str
    code: str
    size: int
    shape: tuple[int, ...]
    start: int

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) * self.size

    def __str__(self) -> str:
        kind = f"text of {self.size // 4}" if self.code == "U" else f"{self.code}{self.size}"
        return f"{self.name} as {kind} {list(self.shape)}"


Contents = tuple[dict[str, "np.ndarray"], dict[str, str]]
Check = Callable[[dict[str, Claim]], None]


def read(data: bytes, subject: str, numbers: tuple[str, ...], words: tuple[str, ...], check: Check) -> Contents:
    """Arrays of whole numbers, and texts, by key; other keys are passed over.

    Args:
        check: sees what is claimed, and may refuse it, before any of it is unpacked.

    Raises:
        RoutingFileError: no such file, other types, more than ``MOST_BYTES``, or what ``check`` raises.
    """
    with _refused(subject), zipfile.ZipFile(io.BytesIO(_few(data))) as archive:
        members = _members(archive, numbers + words)
        claims = {name: _claim(archive, info, name, name in words) for name, info in members.items()}
        check(claims)
        raw = {name: _values(archive, info, claims[name]) for name, info in members.items()}
        texts = {name: _text(raw[name], claims[name]) for name in words if name in raw}
        return {name: _array(raw[name], claims[name]) for name in numbers if name in raw}, texts


@contextmanager
def _refused(subject: str) -> Iterator[None]:
    """Whatever a broken zip file raises, as a refusal."""
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        ValueError,
        EOFError,
        RuntimeError,
        OSError,
        OverflowError,
    ) as error:
        raise RoutingFileError(
            subject, expected=EXPECTED, found=printable(str(error), 200) or "something else"
        ) from None


def _few(data: bytes) -> bytes:
    """The file, if its directory is short: each entry of it costs ten times its bytes."""
    if data.count(_ENTRY) > MOST_MEMBERS:
        raise ValueError(f"more than {MOST_MEMBERS} arrays")
    return data


def _members(archive: zipfile.ZipFile, wanted: tuple[str, ...]) -> dict[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name not in wanted:
            continue
        if name in found:
            raise ValueError(f"{name} twice")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} compressed by another method than deflate")
        found[name] = info
    if sum(info.file_size for info in found.values()) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES} bytes")
    return found


def _claim(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, is_text: bool) -> Claim:
    with archive.open(info) as file:
        magic, length = file.read(len(_MAGIC)), int.from_bytes(file.read(2), "little")
        if magic != _MAGIC or length > _LONGEST_HEADER:
            raise ValueError(f"{name} in another format than .npy 1.0")
        header = file.read(length)
    match = _HEADER.fullmatch(header)
    if match is None:
        raise ValueError(f"{name} with the header {printable(header)}")
    order, code, size = match[1].decode(), match[2].decode(), int(match[3])
    shape = tuple(int(n) for n in re.findall(rb"\d+", match[4]))
    claim = Claim(name, order, code, 4 * size if code == "U" else size, shape, len(_MAGIC) + 2 + length)
    is_number = code in "ui" and size in (1, 2, 4, 8)
    if not (code == "U" and prod(shape) == 1 and 0 < size <= MOST_WORDS if is_text else is_number):
        raise ValueError(str(claim))
    if claim.start + claim.n_bytes != info.file_size:
        raise ValueError(f"{claim} in {info.file_size} bytes")
    return claim


def _values(archive: zipfile.ZipFile, info: zipfile.ZipInfo, claim: Claim) -> bytes:
    with archive.open(info) as file:
        file.read(claim.start)
        raw = file.read(claim.n_bytes)
    if len(raw) != claim.n_bytes:
        raise ValueError(f"{claim.name} is cut off")
    return raw


def _array(raw: bytes, claim: Claim) -> np.ndarray:
    import numpy as np

    return np.frombuffer(raw, f"{claim.order}{claim.code}{claim.size}").reshape(claim.shape)


def _text(raw: bytes, claim: Claim) -> str:
    """The code points, 32 bits each; those that are none are a ValueError."""
    return raw.decode("utf-32-be" if claim.order == ">" else "utf-32-le").rstrip("\0")
