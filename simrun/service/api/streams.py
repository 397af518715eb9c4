"""Answers without an end of their own: they are ended when the process stops, which would wait for them otherwise."""

from __future__ import annotations

import asyncio
import resource
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from simrun.base.errors import BackendUnavailable, Exhausted

MOST = 5000
"""Answers at once, however many files may be open."""
COME_BACK_S = 5.0
STALLED_S = 60.0
"""A reader that takes nothing for so long is cut: its place is another's."""


class Streams:
    """The answers that are being written bit by bit now."""

    def __init__(self, most: int | None = None) -> None:
        """Take no more than `most`: half of what this process may have open, where it is absent, since records need files too."""
        self.most = _most() if most is None else most
        self._tasks: set[asyncio.Task[object]] = set()
        self._closed = threading.Event()

    @asynccontextmanager
    async def open(
        self,
        request: web.Request,
        headers: Mapping[str, str],
        *,
        status: int = 200,
        patient: bool = True,
    ) -> AsyncIterator[web.StreamResponse]:
        """Begin an answer, which goes on until the process stops; one that fails is cut, never ended as if whole.

        A reader that takes nothing of it is cut, but for one that is not `patient`, whose writer has a measure of its own.
        Raises Exhausted where there are too many, BackendUnavailable once the process stops.
        """
        self.go_on()
        if len(self._tasks) >= self.most:
            raise Exhausted(
                f"{self.most} answers are being sent already; come back, or ask for less at once",
                retry_after_s=COME_BACK_S,
            )
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)  # before it waits for anything: it counts, and can be cut
        kind = _Patient if patient else web.StreamResponse
        response = kind(status=status, headers=headers)
        try:
            await response.prepare(request)
            yield response
        except Exception:
            if request.transport is not None:
                request.transport.close()
            raise
        finally:
            if task is not None:
                self._tasks.discard(task)

    def close(self) -> None:
        """End all, and what threads do for requests: the process stops."""
        self._closed.set()
        self.cut()

    def go_on(self, _count: int = 0) -> None:
        """Raise BackendUnavailable once the process stops; for what a thread does for minutes, which nobody can end."""
        if self._closed.is_set():
            raise BackendUnavailable("the service stops; ask again once it is back")

    def cut(self) -> None:
        """End all: whoever reads one connects again, to the next process."""
        for task in list(self._tasks):
            task.cancel()


class _Patient(web.StreamResponse):
    """An answer whose reader takes something of it now and then; one that does not is cut."""

    _reader: asyncio.BaseTransport | None = None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the head."""
        self._reader = request.transport
        return await super().prepare(request)

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, and wait until there is room for more. Raises ConnectionError."""
        try:
            async with asyncio.timeout(STALLED_S):
                await super().write(data)
        except TimeoutError:
            if isinstance(self._reader, asyncio.WriteTransport):
                self._reader.abort()
            raise ConnectionAbortedError("the reader takes nothing any more") from None


def _most() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, max(1, soft // 2))


STREAMS = web.AppKey("streams", Streams)
