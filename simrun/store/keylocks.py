"""Locks by name, between the threads of a process: one for each name, for as long as somebody holds it or waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary


class KeyLocks:
    """As many locks as there are names in use; those of names that nobody uses any more go by themselves."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._guard = threading.Lock()

    @contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Hold the lock of a name."""
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            yield

    def locked(self, key: str) -> bool:
        """Whether somebody holds the lock of a name now."""
        lock = self._locks.get(key)
        return lock is not None and lock.locked()
