"""A tar, bit by bit: headers and padding around contents that somebody else sends."""

from __future__ import annotations

import tarfile

END = b"\0" * (2 * tarfile.BLOCKSIZE)
"""What ends an archive."""


def file_header(path: str, size: int, modified: float) -> bytes:
    """Give the header of a plain file: `size` bytes follow, then `padding(size)`."""
    info = tarfile.TarInfo(path)
    info.size, info.mtime, info.mode = size, int(modified), 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def padding(size: int) -> bytes:
    """Give what fills the last block of a content."""
    return b"\0" * (-size % tarfile.BLOCKSIZE)
