"""What the service adds to the harness's file primitives: the probe of a store, removal, following no link out of a run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from simrun.base.errors import NotFound, UnsupportedStore
from simrun.worker import files


def probe(root: Path) -> None:
    """Try out everything that records stand on, in `root`. Raises UnsupportedStore with what failed and the remedy."""
    one, two = files.temporary_name(root), files.temporary_name(root)
    step = "create and fsync a file"
    try:
        try:
            files.write_synced(one, b"probe\n")
            step = "make a hard link"
            os.link(one, two)
            step = "refuse a second link of one name"
            if not _refuses_link(one, two):
                raise UnsupportedStore(
                    _advice(root, "replaces a name by link, so no claim would hold")
                )
            step = "rename"
            os.rename(two, one)
            step = "fsync a directory"
            files.sync_directory(root)
        except OSError as error:
            raise UnsupportedStore(
                _advice(root, f"cannot {step}: {error.strerror or error}")
            ) from error
    finally:
        for name in (one, two):
            name.unlink(missing_ok=True)


def _refuses_link(one: Path, two: Path) -> bool:
    try:
        os.link(one, two)
    except FileExistsError:
        return True
    return False


def _advice(root: Path, what: str) -> str:
    return (
        f"{root}: this file system {what}; "
        "put the store on a local disk or on NFS (ext4, xfs and NFS v3/v4 work), writable by this user"
    )


def remove_tree(root: Path) -> None:
    """Remove a directory and all in it, links themselves and never what they point to; one that is gone is fine."""
    try:
        shutil.rmtree(root)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        root.unlink(missing_ok=True)


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
                fd = os.open(name, flags if last else flags | os.O_DIRECTORY, dir_fd=where)
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


def _is_plain(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return (mode & 0o170000) in (0o100000, 0o040000)
