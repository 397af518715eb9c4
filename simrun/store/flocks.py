"""Locks between processes that work in one store. Where a file system locks no files nobody is kept out; there one service does such work."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from simrun.base.errors import Conflict

SHARED, ALONE = fcntl.LOCK_SH, fcntl.LOCK_EX
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL})
"""What a file system says that locks no files."""
_LOOK_S = 0.05


def try_lock(fd: int, how: int) -> bool:
    """Lock an open file until it is closed; False when another holds it. Without locks there is nobody who holds one."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


@contextmanager
def held(path: Path, how: int, *, patience_s: float, busy: str) -> Iterator[None]:
    """Hold a lock file, which is made where it is missing. Raises Conflict with `busy` after `patience_s` seconds."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        end = time.monotonic() + patience_s
        while not try_lock(fd, how):
            if time.monotonic() > end:
                raise Conflict(busy)
            time.sleep(_LOOK_S)
        yield
    finally:
        os.close(fd)


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Keep other processes out of a directory, as far as they ask too. Raises FileNotFoundError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # NFS, say, locks no directories
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
