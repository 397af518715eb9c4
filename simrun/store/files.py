"""What the service adds to the harness's file primitives: the probe of a store, removal, following no link out of a run."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simrun.base.errors import NotFound, UnsupportedStore
from simrun.worker import files


def probe(root: Path) -> None:
    """Try out everything that records stand on, in `root`. Raises UnsupportedStore with what failed and the remedy."""
    one, two, three = (files.temporary_name(root) for _ in range(3))
    try:
        with trying(root, "create and fsync a file"):
            files.write_synced(one, b"probe\n")
        with trying(root, "make a hard link"):
            os.link(one, two)
        with trying(root, "refuse a second link of one name"):
            _be_refused(one, two)
        with trying(root, "rename a file"):
            os.rename(two, three)
        with trying(root, "remove a file"):
            os.unlink(three)
        with trying(root, "fsync a directory"):
            files.sync_directory(root)
    finally:
        for name in (one, two, three):
            try:
                os.unlink(name)
            except OSError:
                pass  # not there, or not to be removed: what was tried has said so


@contextmanager
def trying(root: Path, what: str) -> Iterator[None]:
    """Turn the error of a file system into one that says what a run store needs, and the remedy."""
    try:
        yield
    except OSError as error:
        raise UnsupportedStore(
            f"{root}: cannot {what}: {error.strerror or error}; put the store on a local disk or on NFS "
            f"(ext4, xfs and NFS v3/v4 work), in a directory that uid {os.geteuid()} may write to"
        ) from error


def _be_refused(one: Path, two: Path) -> None:
    try:
        os.link(one, two)
    except FileExistsError:
        return
    raise OSError(errno.EEXIST, "a link replaced the name, so no claim would hold")


def remove_tree(root: Path) -> None:
    """Remove a directory and all in it, links themselves and never what they point to; what is gone already is fine."""
    try:
        if sys.version_info >= (3, 12):
            shutil.rmtree(root, onexc=lambda _function, _path, error: _pass_over(error))
        else:
            shutil.rmtree(root, onerror=lambda _function, _path, info: _pass_over(info[1]))
    except NotADirectoryError:
        root.unlink(missing_ok=True)


def _pass_over(error: BaseException) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def open_beneath(root: Path, *names: str) -> int:
    """Open `root/names…` for reading and give the descriptor; no part of the way may be a link.

    For whatever a pod may have put into its run: a link to a file of this machine, a FIFO that blocks, a device.
    Raises NotFound for all of them alike, so that an answer doesn't tell what exists outside.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    where = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for position, name in enumerate(names):
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise NotFound(f"no file {'/'.join(names)!r}")
            last = position == len(names) - 1
            try:
                fd = _open_in(where, name, flags if last else flags | os.O_DIRECTORY)
            except OSError as error:
                raise NotFound(f"no file {'/'.join(names)!r}") from error
            os.close(where)
            where = fd
        if not _is_plain(where):
            raise NotFound(f"no file {'/'.join(names)!r}")
        return where
    except BaseException:
        os.close(where)
        raise


def _open_in(directory: int, name: str, flags: int) -> int:
    """Open a name in an open directory; a denial that the listing contradicts came from a cache, which is made to forget it."""
    try:
        return os.open(name, flags, dir_fd=directory)
    except FileNotFoundError:
        if name not in os.listdir(directory):
            raise
    # As in worker.files, but by descriptor: a pod may put a link in the place of any directory on the way
    try:
        os.mkdir(name, dir_fd=directory)
    except OSError:
        pass  # "exists"
    else:
        os.rmdir(name, dir_fd=directory)  # it went away between the listing and now
    return os.open(name, flags, dir_fd=directory)


def _is_plain(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return (mode & 0o170000) in (0o100000, 0o040000)
