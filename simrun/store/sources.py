"""Directories that become snapshots: looked through as a whole, then read file by file.

Nothing but regular files and directories counts. A link is followed where it leads to something in the same directory and refused
where it leads out; FIFOs, sockets and devices are refused by name and never opened.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from simrun.base.errors import InvalidInput, NotFound, Problem
from simrun.model.snapshot import OWN_DIRECTORY, Entry, in_order
from simrun.store.intake import CHUNK, SnapshotLimits, check_limits, path_problem

_NO_FOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_EXECUTE = 0o111
_SHOWN = 20
"""Problems that are told of one directory; more of them are mostly the same again."""
_KINDS = {
    stat.S_IFIFO: "is a FIFO",
    stat.S_IFSOCK: "is a socket",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
}

Step = Callable[[int], object]
"""Told of bytes that were read; may raise to end the work."""


def no_step(count: int) -> None:
    """Mind nothing."""


class SourceFile(NamedTuple):
    """A file that goes into a snapshot: where it is, and under which path it goes in."""

    path: str
    source: str
    size: int
    executable: bool


@dataclass(slots=True)
class Source:
    """What a directory holds, before anything of it was read."""

    title: str
    files: list[SourceFile] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    """Directories with nothing in them."""

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def look_through(top: Path, limits: SnapshotLimits, *, leave_out: Path | None = None) -> Source:
    """Find what of a directory, or of one file, goes into a snapshot; not the directory `leave_out`, a run store that happens to lie in it.

    Raises NotFound, and InvalidInput with everything that can't go in.
    """
    try:
        status = os.stat(top)
        real = os.path.realpath(top, strict=True)
    except FileNotFoundError as error:
        raise NotFound(f"no file or directory {str(top)!r}") from error
    except OSError as error:
        raise InvalidInput.one("", f"can't be read: {error.strerror}", value=str(top)) from error
    found = Source(os.path.basename(real))
    walk = _Walk(real, found, limits, os.path.realpath(leave_out) if leave_out else None)
    if stat.S_ISDIR(status.st_mode):
        walk.directory(real, "", (_identity(status),))
    else:
        walk.file(found.title, real, status)
    if walk.problems:
        raise InvalidInput(walk.problems)
    return found


class _Walk:
    def __init__(
        self, top: str, found: Source, limits: SnapshotLimits, leave_out: str | None
    ) -> None:
        self._top, self._found, self._limits, self._leave_out = top, found, limits, leave_out
        self._bytes = 0
        self.problems: list[Problem] = []

    def directory(self, place: str, path: str, above: tuple[tuple[int, int], ...]) -> None:
        """Go through a directory, in the order of its names. `above` are the directories on the way to it."""
        try:
            names = sorted(os.listdir(place))
        except OSError as error:
            self._problem(path, f"can't be read: {error.strerror}")
            return
        if not path and OWN_DIRECTORY in names:
            names.remove(OWN_DIRECTORY)
        if not names and path:
            self._found.empty.append(path)
        for name in names:
            if len(self.problems) >= _SHOWN:
                return
            self._entry(os.path.join(place, name), f"{path}/{name}" if path else name, above)

    def _entry(self, place: str, path: str, above: tuple[tuple[int, int], ...]) -> None:
        if problem := path_problem(path):
            self._problem(path, problem, "rename it")
            return
        try:
            status = os.lstat(place)
            if stat.S_ISLNK(status.st_mode):
                place = os.path.realpath(place, strict=True)
                if place != self._top and not place.startswith(self._top.rstrip("/") + "/"):
                    remedy = "put what it points to in its place"
                    self._problem(path, f"is a link out of the directory, to {place}", remedy)
                    return
                status = os.stat(place)
        except OSError as error:
            text = "is a link to nothing" if os.path.islink(place) else "can't be read"
            self._problem(path, f"{text}: {error.strerror}")
            return
        if place == self._leave_out:
            return
        if not stat.S_ISDIR(status.st_mode):
            self.file(path, place, status)
        elif _identity(status) in above:
            self._problem(path, "is a link that leads in a circle", "remove it")
        else:
            self.directory(place, path, (*above, _identity(status)))

    def file(self, path: str, place: str, status: os.stat_result) -> None:
        """Take a file, or say why it can't go in."""
        if problem := path_problem(path):
            self._problem(path, problem, "rename it")
            return
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "is neither a file nor a directory")
            self._problem(path, kind, "leave it out")
            return
        self._bytes += status.st_size
        executable = bool(status.st_mode & _EXECUTE)
        self._found.files.append(SourceFile(path, place, status.st_size, executable))
        check_limits(self._limits, len(self._found.files), self._bytes)

    def _problem(self, path: str, message: str, remedy: str | None = None) -> None:
        shown = path.encode(errors="replace").decode()
        self.problems.append(Problem(shown or self._top, message, None, remedy))


def hashed(source: Source, step: Step = no_step) -> list[Entry]:
    """Read all of a source and give its entries, in order. Raises InvalidInput for what changes meanwhile."""
    entries = [Entry(f"{path}/", 0, "") for path in source.empty]
    for file in source.files:
        digest = hashlib.sha256()
        size = 0
        for data in content(file, step):
            digest.update(data)
            size += len(data)
        entries.append(Entry(file.path, size, digest.hexdigest(), file.executable))
    return in_order(entries)


def content(file: SourceFile, step: Step = no_step) -> Iterator[bytes]:
    """Yield what is in a file. Raises InvalidInput when it is not the one that was found, or changes while it is read."""
    changed = InvalidInput.one(
        file.path, "changed while it was read", remedy="stop what writes it, and try again"
    )
    try:
        fd = os.open(file.source, _NO_FOLLOW)
    except FileNotFoundError:
        raise changed from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise changed from None
        raise InvalidInput.one(file.path, f"can't be read: {error.strerror}") from error
    with open(fd, "rb", buffering=0) as reader:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode) or before.st_size != file.size:
            raise changed
        total = 0
        while data := reader.read(CHUNK):
            total += len(data)
            if total > file.size:
                raise changed  # it may grow as fast as it is read
            step(len(data))
            yield data
        after = os.fstat(fd)
        if total != file.size or after.st_mtime_ns != before.st_mtime_ns:
            raise changed


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
