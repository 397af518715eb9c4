"""Which file system a path is on: what must have a local disk asks here before it trusts one."""

from __future__ import annotations

from pathlib import Path

_NETWORK_FILE_SYSTEMS = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "ocfs2",
        "smb3",
        "smbfs",
    ]
)


def network_file_system(path: Path) -> str | None:
    """Give the type of the network file system that a path is on, None for a local one; the path need not exist."""
    best, kind = "", ""
    text = str(path)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            place = before.split()[4].encode().decode("unicode_escape")
            inside = text == place or text.startswith(place.rstrip("/") + "/")
            if inside and len(place) >= len(best):
                best, kind = place, after.split()[0]
    return kind if kind in _NETWORK_FILE_SYSTEMS else None
