from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from planner.facts.machine import Disk
from probes import mounts, storage
from probes.probe import Absent, Failed, Found, Request


@pytest.mark.parametrize(
    ("path", "disk"),
    [
        ("/data/my models/a.gguf", Disk("", "xfs", "/dev/nvme0n1p2", rotational=False)),
        ("/data/my modelsX/a.gguf", Disk("", "overlay")),
        ("/mnt/share/a.gguf", Disk("", "nfs4", remote=True)),
        ("/mnt/share", Disk("", "nfs4", remote=True)),
    ],
)
def test_longest_mount_wins(recorded: Any, path: str, disk: Disk) -> None:
    found = storage.read(recorded("container-v2"), Request(model_path=path), {}).value
    assert (found.path, found.filesystem, found.device) == (path, disk.filesystem, disk.device)
    assert (found.rotational, found.remote) == (disk.rotational, disk.remote)


def test_later_mount_hides_an_earlier_one() -> None:
    table = mounts.parse(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / /m rw - ext4 /dev/a rw\n3 1 8:3 / /m rw - xfs /dev/b rw\n"
    )
    found = storage.find(table, "/m/x")
    assert found is not None and found.source == "/dev/b"


def test_odd_mount_lines_are_skipped() -> None:
    assert mounts.parse("\n1 2 3\nx - y\n1 0 8:1 / / rw - \n") == ()


@pytest.mark.parametrize(
    ("kind", "remote"),
    [
        ("ext4", False),
        ("fuseblk", False),
        ("fuse.sshfs", True),
        ("fuse", True),
        ("cifs", True),
        ("NFS", True),
        ("9p", True),
    ],
)
def test_remote(kind: str, remote: bool) -> None:
    assert storage.is_remote(kind) is remote


def test_windows_drive(recorded: Any) -> None:
    parts = [
        SimpleNamespace(mountpoint="C:\\", fstype="NTFS", device="C:\\"),
        SimpleNamespace(mountpoint="D:\\", fstype="exFAT", device="D:\\"),
    ]
    psutil = SimpleNamespace(disk_partitions=lambda all: parts)
    host = recorded("desktop-wddm", libraries={"psutil": psutil})
    assert storage.read(host, Request("d:\\models\\a.gguf"), {}) == Found(Disk("d:\\models\\a.gguf", "exFAT", "D:\\"))
    assert isinstance(storage.read(host, Request("E:\\a.gguf"), {}), Failed)


def test_without_a_model(recorded: Any) -> None:
    assert isinstance(storage.read(recorded("cloud-vm"), Request(), {}), Absent)
    assert isinstance(storage.read(recorded("apu"), Request("relative"), {}), Failed)
