"""The lock of a local store: one process plans and follows the runs in it, and says who it is.

An flock, so it goes with the process however that ends, kept for local disks (flock on NFS is no promise; on a
cluster the Lease decides). The file's content is only for people; a stale one means nothing without the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from simrun.base.errors import Locked, UnsupportedStore
from simrun.store.layout import StoreLayout

_TRIES = 3
_AGAIN_S = 0.02
"""Whoever asks whether a lock is taken holds it, shared, for a moment: one refusal is no answer yet."""


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
            _take(fd)
        except BlockingIOError:
            os.close(fd)
            raise self.refusal() from None
        except OSError as error:
            os.close(fd)
            raise self._unsupported(error) from error
        self._fd = fd
        me = Holder(command, os.getpid(), socket.gethostname(), since, url)
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(asdict(me)).encode(), 0)

    def refusal(self, remedy: str = "wait for it") -> Locked:
        """Give the error that names the holder, and what to do instead."""
        return Locked(
            f"the store {self._path.parent} is held by {self.holder() or 'another simrun'}; "
            f"{remedy}, or use another store with --store DIR"
        )

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

    def taken(self) -> bool:
        """Whether a process holds the lock now. Raises UnsupportedStore where no file can be locked."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unsupported(error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            raise self._unsupported(error) from error
        finally:
            os.close(fd)
        return False

    def holder(self) -> Holder | None:
        """Give who last took the lock, and may be gone (`taken` tells); None when that can't be read."""
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


def _take(fd: int) -> None:
    """Lock for oneself. Raises BlockingIOError when another process does."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_AGAIN_S)
        else:
            return
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
