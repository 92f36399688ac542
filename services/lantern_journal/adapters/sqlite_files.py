"""What must be right about an SQLite file before it is opened: its file system, and what a failed sync left behind."""

import logging
import os
from pathlib import Path

from lantern_kernel.errors import InvalidField

log = logging.getLogger(__name__)

MOUNTS = Path("/proc/self/mountinfo")

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "ocfs2"}
)
"""File systems between machines: the memory that SQLite's write-ahead log needs is not one between them, and a lock may
not hold (sqlite.org/wal.html, "all processes using a database must be on the same host")."""

REMOTE_PROGRAMS = frozenset({"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse"})
"""File systems in a program that are one between machines, too."""

DOUBTFUL = frozenset({"9p", "virtiofs", "fuse"})
"""Folders that a virtual machine or a container has of its host, mostly: fast enough for a laptop, but whether a sync
reaches the disk is for the host to say."""

COPY_BYTES = 1024 * 1024


def check_file_system(path: Path, mounts: str | None = None) -> None:
    """Refuses a database on a network file system, and warns of one where a sync may promise too much.

    Args:
        path: Of the database.
        mounts: The text of /proc/self/mountinfo; None reads it, and knows nothing where there is none.

    Raises:
        InvalidField: It lies on a network file system.
    """
    if mounts is None:
        mounts = MOUNTS.read_text(errors="replace") if MOUNTS.exists() else ""
    kind = _kind_at(path.absolute().parent.resolve(), mounts)
    if kind in NETWORK or kind in REMOTE_PROGRAMS:
        raise InvalidField(
            "LANTERN_DATABASE",
            f"{path} lies on a network file system ({kind}), where SQLite cannot keep its promises;"
            " use a local disk, or PostgreSQL",
        )
    if kind.partition(".")[0] in DOUBTFUL:
        log.warning(
            "the database lies on a shared folder",
            extra={"action": "doubtful_file_system", "file_system": kind, "hint": "use a local disk, or PostgreSQL"},
        )


def _kind_at(folder: Path, mounts: str) -> str:
    """The kind of file system at a folder: of the mount that reaches furthest down to it, the last one of several."""
    found, depth = "", -1
    for line in mounts.splitlines():
        # 36 35 98:0 /root /mount/point options [more ...] - kind source options (proc(5))
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) < 5:
            continue
        point = Path(fields[4].replace(r"\040", " ").replace(r"\011", "\t").replace(r"\134", "\\"))
        if folder.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = kinds[0], len(point.parts)
    return found


def settle_log(path: Path) -> None:
    """Writes the write-ahead log onto itself and syncs it, so that what recovery will find there is on the disk.

    After a failed sync the system holds written bytes in memory that it takes for saved and never writes again. A
    process that was killed then leaves a log that reads well and is not on the disk: recovery would adopt a
    transaction that a power cut could still take away. Writing the same bytes makes the system write them out.
    Nobody else has the file open: the lock beside it is ours.

    Raises:
        OSError: The log cannot be read, written or synced.
    """
    wal = path.with_name(path.name + "-wal")
    try:
        descriptor = os.open(wal, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        offset = 0
        while part := os.pread(descriptor, COPY_BYTES, offset):
            written = 0
            while written < len(part):
                written += os.pwrite(descriptor, part[written:], offset + written)
            offset += len(part)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
