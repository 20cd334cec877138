from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from planner.errors import MachineFileError
from planner.files import MAX_JSON_BYTES, text_of


def refused(path: Path) -> tuple[str, str]:
    """What was expected and found."""
    with pytest.raises(MachineFileError) as caught:
        text_of(str(path), MachineFileError)
    return caught.value.expected, caught.value.found


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("ä\n", encoding="utf-8")
    assert text_of(str(tmp_path / "a"), MachineFileError) == "ä\n"


def test_what_is_no_file(tmp_path: Path) -> None:
    assert refused(tmp_path) == ("a file", "a folder or device")
    assert refused(tmp_path / "none") == ("a file", "nothing there")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "fifo")
        assert refused(tmp_path / "fifo") == ("a file", "a folder or device")
    if Path("/dev/zero").exists():
        assert refused(Path("/dev/zero")) == ("a file", "a folder or device")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_files_of_the_kernel_that_never_end() -> None:
    assert text_of("/proc/kmsg", MachineFileError) == ""


def test_sizes(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"")
    assert text_of(str(file), MachineFileError) == ""
    file.write_bytes(b" " * MAX_JSON_BYTES)
    assert len(text_of(str(file), MachineFileError)) == MAX_JSON_BYTES
    file.write_bytes(b" " * (MAX_JSON_BYTES + 1))
    assert refused(file) == (f"at most {MAX_JSON_BYTES} bytes", str(MAX_JSON_BYTES + 1))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"ab\xff")
    assert refused(tmp_path / "a") == ("UTF-8 text", "another byte at 2")
