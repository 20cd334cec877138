"""File system and block device under the model: ``/proc/self/mountinfo`` and ``/sys``; elsewhere psutil.

Compare with ``df -T MODEL`` and ``lsblk -o NAME,ROTA``.
"""

from __future__ import annotations

import posixpath
from typing import Any, Final

from planner.facts.machine import Disk, Os
from probes import mounts
from probes.host import Host
from probes.probe import Absent, Failed, Found, Outcome, Request, Seen
from probes.text import clean, printable, whole

_REMOTE: Final = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "lustre", "glusterfs", "afs", "beegfs", "ocfs2",
    "gfs2", "gpfs", "orangefs", "webdav", "afpfs", "vboxsf", "drvfs", "prl_fs",
})  # fmt: skip


def read(host: Host, request: Request, _seen: Seen) -> Outcome[Disk]:
    if request.model_path is None:
        return Absent("no local model was named")
    path = host.real_path(request.model_path)
    if host.os is not Os.LINUX:
        psutil = host.library("psutil")
        if psutil is None:
            return Failed("psutil is not installed")
        return _other(path, psutil.disk_partitions(all=True), ignore_case=host.os is Os.WINDOWS)
    mount = find(mounts.read(host), path)
    if mount is None:
        return Failed("/proc/self/mountinfo names no file system for the model")
    return Found(
        Disk(
            path=printable(path),
            filesystem=clean(mount.kind),
            device=clean(mount.source) if mount.source.startswith("/dev/") else None,
            rotational=_rotational(host, mount),
            remote=is_remote(mount.kind),
        )
    )


def find(table: tuple[mounts.Mount, ...], path: str) -> mounts.Mount | None:
    """The mount a path lies on: the longest mount point above it, the last one where several hide each other."""
    above = [mount for mount in table if _below(path, mount.point)]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_remote(kind: str) -> bool:
    """True where reads leave the kernel's own disk path: a network, a host share or a FUSE program."""
    return kind.lower() in _REMOTE or (kind.startswith("fuse") and kind != "fuseblk")


def _rotational(host: Host, mount: mounts.Mount) -> bool | None:
    """The kernel's flag, of the disk itself where the device is a partition; None where it does not say."""
    name = posixpath.basename(mount.source)
    for folder in (f"/sys/dev/block/{mount.number}", f"/sys/class/block/{name}"):
        for file in (f"{folder}/queue/rotational", f"{folder}/../queue/rotational"):
            flag = whole(host.read_text(file))
            if flag is not None:
                return flag == 1
    return None


def _other(path: str, partitions: Any, *, ignore_case: bool) -> Outcome[Disk]:
    """macOS and Windows: psutil's partition table."""

    def plain(text: str) -> str:
        text = text.replace("\\", "/")
        return text.lower() if ignore_case else text

    above = [part for part in partitions if _below(plain(path), plain(part.mountpoint))]
    if not above:
        return Failed("no mounted file system holds the model")
    part = max(above, key=lambda part: len(part.mountpoint))
    kind = clean(part.fstype)
    return Found(Disk(printable(path), kind or None, clean(part.device) or None, remote=is_remote(kind)))
