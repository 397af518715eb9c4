"""Whether the run store answers: asked each time somebody wants to know whether this process is ready.

A file server that hangs gives no error, it gives nothing; so one look is out at a time, and how long it has been out is the
answer.
"""

from __future__ import annotations

import asyncio
import errno
import os
from concurrent.futures import Future
from pathlib import Path

from simrun.aio.threads import Pool
from simrun.base.clock import Clock

ANSWERS_WITHIN_S = 1.0
"""How long a look is waited for; probes of Kubernetes give up after a second by default."""
LEAST_FREE = 2**20
"""Bytes below which a store counts as full: records and reports are small, but they are not nothing."""


class StoreCheck:
    """Looks at a store from a thread of its own, which may hang without anybody else's."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root, self._clock = root, clock
        self._pool = Pool("store check", 1)
        self._look: Future[str | None] | None = None
        self._since = 0.0

    async def problem(self) -> str | None:
        """Say why records can't be read or written now; None when they can."""
        if self._look is None:
            self._since = self._clock.monotonic()
            self._look = self._pool.submit(self._see)
        look = self._look
        # Not in_thread: a look that hangs is left alone, it harms nobody
        await asyncio.wait({asyncio.wrap_future(look)}, timeout=ANSWERS_WITHIN_S)
        if not look.done():
            waited = self._clock.monotonic() - self._since
            return f"the store {self._root} has not answered for {waited:.0f} s: it may hang"
        self._look = None
        return look.result()

    def _see(self) -> str | None:
        try:
            seen = os.statvfs(self._root)
            os.listdir(self._root)
        except OSError as error:
            return f"the store {self._root} can't be read: {error.strerror}"
        if seen.f_flag & os.ST_RDONLY:
            return f"the store {self._root} can't be written: {os.strerror(errno.EROFS)}"
        if seen.f_bavail * seen.f_frsize < LEAST_FREE:
            return f"the store {self._root} can't be written: {os.strerror(errno.ENOSPC)}"
        return None

    def close(self) -> None:
        """Look no more."""
        self._pool.close()
