from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from planner.errors import ModelFileError
from planner.gguf.source import FileSource


def test_reads_where_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(range(100)))
    source = FileSource(str(path))
    assert source.size == 100
    assert source.read_at(10, 5) == bytes(range(10, 15))
    assert source.read_at(95, 50) == bytes(range(95, 100))
    assert source.read_at(200, 5) == b""
    source.close()


def test_follows_links(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")
    (tmp_path / "b.bin").symlink_to(tmp_path / "a.bin")
    assert FileSource(str(tmp_path / "b.bin")).read_at(0, 9) == b"abc"


def refused(path: str) -> str:
    with pytest.raises(ModelFileError) as caught:
        FileSource(path)
    assert str(caught.value).isprintable()
    return caught.value.found


def test_what_is_no_file(tmp_path: Path) -> None:
    assert refused(str(tmp_path)) == "a directory"
    assert refused(str(tmp_path / "gone.gguf")) == "no such file"
    assert refused("") == "no such file"
    assert refused("a\0b.gguf") == "embedded null byte"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "symbolic links" in refused(str(tmp_path / "loop"))
    assert refused(str(tmp_path / "\x1b[31m.gguf")) == "no such file"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_special_files_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    assert refused(str(tmp_path / "pipe.gguf")) == "a named pipe"
    assert refused("/dev/zero") == "a character device"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        assert refused(str(tmp_path / "s")) == "a socket"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    (tmp_path / "a.gguf").chmod(0)
    assert refused(str(tmp_path / "a.gguf")) == "permission denied"
