"""The lock of a local store: one process plans and follows the runs in it, and says who it is.

An flock, so it goes with the process however that ends, kept for local disks (flock on NFS is no promise; on a
cluster the Lease decides). The file's content is only for people; a stale one means nothing without the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from simrun.base.errors import Locked, UnsupportedStore
from simrun.store.layout import StoreLayout


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a store: `command` is serve or run; `url` where a serving one listens."""

    command: str
    pid: int
    host: str
    since: float
    url: str | None = None

    def __str__(self) -> str:
        """Give the holder as part of a sentence."""
        where = f" at {self.url}" if self.url else ""
        return f"`simrun {self.command}`{where}, process {self.pid} on {self.host}"


class StoreLock:
    """Held from `acquire` to `release`."""

    def __init__(self, root: Path) -> None:
        self._path = StoreLayout(root).lock
        self._fd: int | None = None

    def acquire(self, command: str, since: float, url: str | None = None) -> None:
        """Take the lock or raise Locked, which names the holder; UnsupportedStore where no file can be locked."""
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            holder = self.holder()
            raise Locked(
                f"the store {self._path.parent} is held by {holder or 'another simrun'}; "
                "wait for it, or use another store with --store DIR"
            ) from None
        except OSError as error:
            os.close(fd)
            raise self._unsupported(error) from error
        self._fd = fd
        me = Holder(command, os.getpid(), socket.gethostname(), since, url)
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(asdict(me)).encode(), 0)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._unsupported(error) from error

    def _unsupported(self, error: OSError) -> UnsupportedStore:
        return UnsupportedStore(
            f"{self._path}: cannot be locked: {error.strerror}; "
            f"put the store on a local disk, in a directory that uid {os.geteuid()} may write to"
        )

    def holder(self) -> Holder | None:
        """Give who last took the lock; None when that can't be read."""
        try:
            return Holder(**json.loads(self._path.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def release(self) -> None:
        """Give the lock back."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None
