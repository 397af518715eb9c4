"""Directories that a user's program filled: flush them, copy them, remove them, whatever lies in them.

Links are never followed out of what is to be flushed or removed, and nothing but regular files is opened: a program may leave
a FIFO or a link to a device, on which the harness would hang.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from simrun.worker import files
from simrun.worker.endings import StoreError

_CHUNK = 2**20
_NO_FOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Size(NamedTuple):
    """What a directory holds."""

    files: int
    bytes: int


def _raise(error: OSError) -> None:
    raise error


def sync(top: Path) -> Size:
    """Flush every file and directory below `top`, and `top`; gives the number and bytes of regular files."""
    count = total = 0
    for directory, _, names in os.walk(top, topdown=False, onerror=_raise):
        for name in names:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            if not stat.S_ISREG(status.st_mode):
                continue
            fd = os.open(path, _NO_FOLLOW)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            count += 1
            total += status.st_size
        files.sync_directory(Path(directory))
    return Size(count, total)


def remove(top: Path) -> None:
    """Remove a file or a directory with all it holds; nothing there is fine.

    Directories that the program made unwritable are opened up first, where this process may.
    """
    try:
        os.unlink(top)
        return
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        if not stat.S_ISDIR(os.lstat(top).st_mode):
            raise
    _open_up(top)
    for directory, directories, _ in os.walk(top):
        for name in directories:  # before the walk goes into them
            _open_up(os.path.join(directory, name))
    for directory, directories, names in os.walk(top, topdown=False, onerror=_raise):
        for name in names:
            os.unlink(os.path.join(directory, name))
        for name in directories:
            path = os.path.join(directory, name)
            if os.path.islink(path):
                os.unlink(path)
            else:
                os.rmdir(path)
    os.rmdir(top)


def _open_up(directory: str | Path) -> None:
    if not os.path.islink(directory) and not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        os.chmod(directory, stat.S_IRWXU)


def copy(source: Path, target: Path, check: Callable[[], object] = lambda: None) -> Size:
    """Copy a file or a directory to `target`, which is not there; calls `check` now and then, which may raise.

    Links are followed, since they would lead elsewhere from the copy. StoreError for what cannot be copied: a FIFO, a
    device, links that lead in a circle, a file that became shorter meanwhile.
    """
    return _copy(source, target, check, ())


def _copy(
    source: Path, target: Path, check: Callable[[], object], above: tuple[tuple[int, int], ...]
) -> Size:
    status = os.stat(source)
    if stat.S_ISREG(status.st_mode):
        return Size(1, _copy_file(source, target, status, check))
    if not stat.S_ISDIR(status.st_mode):
        raise StoreError(f"{source} is neither a file nor a directory; it cannot be copied")
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        raise StoreError(f"{source}: links lead in a circle; it cannot be copied")
    os.mkdir(target)
    count = total = 0
    for name in sorted(os.listdir(source)):
        size = _copy(source / name, target / name, check, (*above, identity))
        count, total = count + size.files, total + size.bytes
    return Size(count, total)


def _copy_file(
    source: Path, target: Path, status: os.stat_result, check: Callable[[], object]
) -> int:
    total = 0
    with open(source, "rb", buffering=0) as reader, open(target, "xb", buffering=0) as writer:
        while data := reader.read(_CHUNK):
            view = memoryview(data)
            while view:
                view = view[writer.write(view) :]
            total += len(data)
            check()
    if total < status.st_size:
        raise StoreError(f"{source} has {status.st_size} bytes, but only {total} could be read")
    os.chmod(target, stat.S_IMODE(status.st_mode) | stat.S_IRUSR)
    return total
