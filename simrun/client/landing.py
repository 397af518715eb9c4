"""Where downloads land: files appear whole, and nothing is written outside of one directory, whatever names they come with."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from simrun.base.errors import Conflict, InvalidInput

_PART = ".simrun-part."
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Incoming:
    """A file that is to land. path: below the directory, with `/`. size in bytes, modified in wall seconds. etag: of its content."""

    path: str
    size: int
    modified: float
    etag: str


class Landing:
    """A directory that files land in. Blocking."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._root = -1

    def __enter__(self) -> Self:
        """Make the directory unless it is there. Raises InvalidInput."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._root = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidInput.one(
                "DIR", f"can't be written to: {error.strerror}", value=str(self.directory)
            ) from error
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        os.close(self._root)

    def has(self, file: Incoming) -> bool:
        """Whether a file has landed before and is still as it was then."""
        with self._parent(file.path) as (parent, name), contextlib.suppress(FileNotFoundError):
            seen = os.stat(name, dir_fd=parent, follow_symlinks=False)
            return (
                stat.S_ISREG(seen.st_mode)
                and seen.st_size == file.size
                and abs(seen.st_mtime - file.modified) < 0.001
            )
        return False

    def begun(self, file: Incoming) -> int:
        """Give how many bytes of a file an earlier download has left."""
        with self._parent(file.path) as (parent, name), contextlib.suppress(FileNotFoundError):
            size = os.stat(_part(name, file.etag), dir_fd=parent, follow_symlinks=False).st_size
            return size if size <= file.size else 0
        return 0

    @contextlib.contextmanager
    def part(self, file: Incoming, offset: int) -> Iterator[int]:
        """Open what is to become a file, to be written from `offset` on; the descriptor."""
        with self._parent(file.path) as (parent, name):
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(_part(name, file.etag), flags, 0o666, dir_fd=parent)
            try:
                os.ftruncate(fd, offset)
                os.lseek(fd, offset, os.SEEK_SET)
                yield fd
            finally:
                os.close(fd)

    def land(self, file: Incoming) -> Path:
        """Give a whole part its name. Raises Conflict where it has another size, or a directory has the name."""
        with self._parent(file.path) as (parent, name):
            part = _part(name, file.etag)
            fd = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            try:
                if (size := os.fstat(fd).st_size) != file.size:
                    raise Conflict(
                        f"{file.path} has {size} bytes instead of {file.size}: it changed while it was sent; get it again"
                    )
                os.utime(fd, (file.modified, file.modified))
                os.fsync(fd)
            finally:
                os.close(fd)
            try:
                os.replace(part, name, src_dir_fd=parent, dst_dir_fd=parent)
            except IsADirectoryError:
                raise Conflict(f"{self.directory / file.path} is a directory") from None
            for other in os.listdir(parent):
                if other.startswith(f"{_PART}{name}."):  # of an older state of the file
                    os.unlink(other, dir_fd=parent)
        return self.directory / file.path

    @contextlib.contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the directory of a file, making it; through no link, so that it is below ours. Raises Conflict."""
        parts = path.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise Conflict(f"the server named a file {path!r}, which is refused")
        fd = os.dup(self._root)
        try:
            for part in parts[:-1]:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
                try:
                    inner = os.open(part, _DIRECTORY, dir_fd=fd)
                except OSError as error:
                    raise Conflict(
                        f"{self.directory / path}: {part!r} is no directory of its own there ({error.strerror})"
                    ) from error
                os.close(fd)
                fd = inner
            yield fd, parts[-1]
        finally:
            os.close(fd)


def _part(name: str, etag: str) -> str:
    """Name the part of one state of a file: a rest of another state is never gone on with."""
    return f"{_PART}{name}.{hashlib.sha256(etag.encode()).hexdigest()[:12]}"
