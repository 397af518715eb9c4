"""What comes into a snapshot that is being made: files, hashed while they are written, under paths that stay inside."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from simrun.base.errors import InvalidInput
from simrun.model.snapshot import OWN_DIRECTORY, Entry, in_order

CHUNK = 2**20
_PART_MAX, _PATH_MAX, _DEPTH_MAX = 255, 2048, 64


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """How large one snapshot may be. The list of its files is held in memory while it is made: about 300 bytes each."""

    files: int = 200_000
    bytes: int = 2**40


def check_limits(limits: SnapshotLimits, files: int, size: int) -> None:
    """Raise InvalidInput for more than may be in one snapshot."""
    for what, number, most in (("files", files, limits.files), ("bytes", size, limits.bytes)):
        if number > most:
            text, remedy = f"has more than {most} {what}", "divide it into several snapshots"
            raise InvalidInput.one("", text, remedy=remedy)


def path_problem(path: str) -> str | None:
    """Say why nothing may have this path in a snapshot, or None."""
    parts = path.split("/")
    try:
        length = max(map(len, map(str.encode, parts)))
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        return "must be a relative path without `..`"
    if length > _PART_MAX or len(path.encode()) > _PATH_MAX or len(parts) > _DEPTH_MAX:
        return f"is longer than {_PATH_MAX} bytes or deeper than {_DEPTH_MAX} directories, or has a name of over {_PART_MAX} bytes"
    return None


def is_own(path: str) -> bool:
    """Whether a path is simrun's own in a snapshot: that of an older one, taken as data, is left out."""
    return path.partition("/")[0] == OWN_DIRECTORY


class Intake:
    """The files of a snapshot that is being made, in a directory that nobody else writes to."""

    def __init__(self, top: Path, limits: SnapshotLimits) -> None:
        self._top, self._limits = top, limits
        self._files: dict[str, Entry] = {}
        self._directories: set[str] = set()
        self._bytes = 0

    def add_directory(self, path: str) -> None:
        """Take a directory. Raises InvalidInput."""
        self._check(path)
        self._make(path)

    def add_file(self, path: str, chunks: Iterable[bytes], *, executable: bool) -> None:
        """Write a file with what it holds. Raises InvalidInput, and what comes out of `chunks`."""
        self._check(path)
        if "/" in path:
            self._make(path.rpartition("/")[0])
        digest = hashlib.sha256()
        size = 0
        mode = 0o555 if executable else 0o444
        try:
            fd = os.open(
                self._top / path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode
            )
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise _twice(path) from error
        with open(fd, "wb", buffering=0) as writer:
            os.fchmod(fd, mode)  # whatever the umask
            for data in chunks:
                size += len(data)
                check_limits(self._limits, len(self._files) + 1, self._bytes + size)
                digest.update(data)
                view = memoryview(data)
                while view:
                    view = view[writer.write(view) :]
        self._bytes += size
        self._files[path] = Entry(path, size, digest.hexdigest(), executable)

    def add_link(self, path: str, same_as: str) -> None:
        """Take a further name of a file that came before: the same file, which nobody will write to. Raises InvalidInput."""
        self._check(path)
        known = self._files.get(same_as)
        if known is None:
            raise InvalidInput.one(
                "file",
                f"is a hard link to {same_as[:200]!r}, which did not come before it",
                value=path[:200],
                remedy="make the archive with `tar --hard-dereference`",
            )
        check_limits(self._limits, len(self._files) + 1, self._bytes + known.size)
        if "/" in path:
            self._make(path.rpartition("/")[0])
        try:
            os.link(self._top / same_as, self._top / path)
        except FileExistsError as error:
            raise _twice(path) from error
        self._bytes += known.size
        self._files[path] = known._replace(path=path)

    def entries(self) -> list[Entry]:
        """Give what came in, in order."""
        full = {path.rpartition("/")[0] for path in self._files}
        full |= {path.rpartition("/")[0] for path in self._directories}
        empty = [Entry(f"{path}/", 0, "") for path in self._directories - full]
        return in_order([*self._files.values(), *empty])

    def _check(self, path: str) -> None:
        if problem := path_problem(path):
            raise InvalidInput.one("file", problem, value=path[:200])
        if is_own(path):
            raise InvalidInput.one(
                "file", f"{OWN_DIRECTORY} is simrun's own", value=path, remedy="leave it out"
            )
        check_limits(self._limits, len(self._files) + len(self._directories), self._bytes)

    def _make(self, path: str) -> None:
        if path in self._directories:
            return
        above = path.rpartition("/")[0]
        if above:
            self._make(above)
        try:
            os.mkdir(self._top / path)
        except FileExistsError as error:
            raise _twice(path) from error
        self._directories.add(path)


def _twice(path: str) -> InvalidInput:
    return InvalidInput.one("file", "is there twice", value=path, remedy="send each file once")
