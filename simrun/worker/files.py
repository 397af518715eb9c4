"""Files on a shared file system: the only module, with `simrun.store.files`, that knows what NFS does.

What it knows: a lookup of a name may be answered from a cached "no such file" for up to a minute, a listing of the
directory is not; `rename` silently replaces, `link` never does, so only a link can decide a race; the reply to a link may be lost, so
the inode tells who won, never the link count; a file without fsync may be empty after a crash; ESTALE means that the name
now stands for another file, so reading is tried again.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_counter = itertools.count()
_PROCESS = os.urandom(
    8
).hex()  # host names don't do: pods share them, or differ only in a part that is cut
TEMPORARY_PREFIX = ".tmp."
_ESTALE_TRIES = 3


def temporary_name(directory: Path) -> Path:
    """Give a name in `directory` that nobody else uses, on any host; sweepers know it by its prefix."""
    unique = f"{_PROCESS}.{os.getpid()}.{threading.get_ident():x}.{next(_counter)}"
    return directory / f"{TEMPORARY_PREFIX}{unique}"


def write_synced(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a new file whole and fsync it (unless not durable); a file that is there already is an error."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if durable:
            os.fsync(fd)
    except BaseException:
        os.close(fd)
        os.unlink(path)
        raise
    os.close(fd)  # an error here is a failed write on NFS; it must be seen


def sync_directory(path: Path) -> None:
    """Make names that were added to a directory survive a crash."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(path: Path) -> None:
    """Make a directory and its parents unless they are there; trusts mkdir's answer, not a lookup that may be cached."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return
    except FileNotFoundError:
        make_directory(path.parent)
        try:
            os.mkdir(path)
        except FileExistsError:
            return
    sync_directory(path.parent)


def replace(
    path: Path, data: bytes, *, durable: bool = True, still: Callable[[], bool] | None = None
) -> bool:
    """Put `data` at `path`, replacing what is there; a reader sees the old or the new content, whole.

    durable False: for what can be made again from something durable; it may be gone after a power cut, never half.
    still: asked when all is written and only the name is to be changed, since writing takes its time; with False
    everything is left as it was. Returns whether `data` took its place.
    """
    temporary = temporary_name(path.parent)
    write_synced(temporary, data, durable=durable)
    if still is not None and not still():
        os.unlink(temporary)
        return False
    try:
        os.rename(temporary, path)
    except OSError:
        # The reply may be lost although the server did it; then the temporary name is gone
        if os.path.lexists(temporary):
            os.unlink(temporary)
            raise
    if durable:
        sync_directory(path.parent)
    return True


def link(source: Path, target: Path) -> bool:
    """Link `source` at `target`; whether `target` is now that very file. The one way to win a race.

    Raises OSError when the store failed and nothing stands at `target`: then nobody has won.
    """
    doubt: OSError | None = None
    try:
        os.link(source, target)
        return True
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in (errno.EIO, errno.ESTALE, errno.ETIMEDOUT):
            raise
        doubt = error
    try:
        return same_file(source, target)
    except FileNotFoundError:
        if doubt is not None:
            raise doubt from None
        return False


def same_file(one: Path, other: Path) -> bool:
    """Whether two names stand for one file."""
    a, b = os.stat(one, follow_symlinks=False), os.stat(other, follow_symlinks=False)
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)


def create(path: Path, data: bytes) -> bool:
    """Put `data` at `path` unless something is there; whether this call made it. Never half-written."""
    temporary = temporary_name(path.parent)
    write_synced(temporary, data)
    try:
        won = link(temporary, path)
    finally:
        os.unlink(temporary)
    if won:
        sync_directory(path.parent)
    return won


def listing(directory: Path) -> set[str]:
    """Give the names in a directory, from the server; none when it does not exist. Temporary names are left out."""
    for attempt in range(_ESTALE_TRIES):
        try:
            return {name for name in os.listdir(directory) if not name.startswith(TEMPORARY_PREFIX)}
        except (FileNotFoundError, NotADirectoryError):
            return set()
        except OSError as error:
            if error.errno != errno.ESTALE or attempt == _ESTALE_TRIES - 1:
                raise
    raise AssertionError("unreachable")


def listed(top: Path, *names: str) -> bool:
    """Whether `top/names[0]/…` exists, by listing each directory from the top down.

    A lookup of the path could be answered by a cached negative entry; one of a directory on the way could hide the rest.
    NFS drops such an entry when it lists the directory that holds it; for file systems that don't (FUSE) that is done here.
    """
    place = top
    for name in names:
        if name not in (listing(place) or _listing_again(place, top)):
            return False
        place /= name
    return True


def _listing_again(directory: Path, top: Path) -> set[str]:
    """Give the names in a directory that its parent's listing has shown, though it looks empty or not there."""
    if directory == top or os.path.lexists(directory):
        return set()
    _forget_absence(directory)
    return listing(directory)


def _forget_absence(path: Path) -> None:
    """Drop the cached entry that denies a name: the server's "exists" to its creation does it, on every file system."""
    try:
        os.mkdir(path)
    except OSError:
        return  # "exists"; or nothing may be made here, and the cache's word has to do
    os.rmdir(path)  # it went away between the listing and now


def read(path: Path, *, listed: bool = False) -> bytes | None:
    """Give the content of a file, None when there is none. `listed`: a listing has shown it, so a denial is a stale one.

    Raises OSError (EINVAL) for what is no file: a FIFO in the place of a report must not hold up its reader, nor a device feed
    it for ever.
    """
    for attempt in range(_ESTALE_TRIES):
        try:
            with open(path, "rb", opener=_open_at_once) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise OSError(errno.EINVAL, "Not a regular file", str(path))
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            if not listed or attempt:
                return None
            _forget_absence(path)
        except OSError as error:
            if error.errno != errno.ESTALE or attempt == _ESTALE_TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def encode(value: Any) -> bytes:
    """Give a value as JSON with a newline at its end, which tells a whole file from a cut one."""
    return (
        json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        + b"\n"
    )


def read_json(path: Path, *, listed: bool = False) -> Any:
    """Give what the JSON of a file says, None when there is no file; ValueError when it is cut or no JSON."""
    data = read(path, listed=listed)
    return None if data is None else json.loads(data)
