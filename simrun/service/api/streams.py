"""Answers without an end of their own: they are ended when the process stops, which would wait for them otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiohttp import web


class Streams:
    """The answers that are being written bit by bit now."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    @asynccontextmanager
    async def open(
        self, request: web.Request, headers: Mapping[str, str], *, status: int = 200
    ) -> AsyncIterator[web.StreamResponse]:
        """Begin an answer, which goes on until the process stops; one that fails is cut, never ended as if whole."""
        task = asyncio.current_task()
        response = web.StreamResponse(status=status, headers=headers)
        await response.prepare(request)
        if task is not None:
            self._tasks.add(task)
        try:
            yield response
        except Exception:
            if request.transport is not None:
                request.transport.close()
            raise
        finally:
            if task is not None:
                self._tasks.discard(task)

    def cut(self) -> None:
        """End all: whoever reads one connects again, to the next process."""
        for task in list(self._tasks):
            task.cancel()


STREAMS = web.AppKey("streams", Streams)
