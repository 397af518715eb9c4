"""Streams of events (server-sent): /api/v1/events of all runs, /api/v1/runs/{run}/events of one.

A page or a client that is cut off connects again with the id of the last event it had and goes on from there, or from the present state.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from aiohttp import web
from pydantic import Field

from simrun.base.errors import NotFound
from simrun.model.access import Scope
from simrun.service.api.access import SESSION, principal_of, run_of
from simrun.service.api.routing import EVENT_STREAM, Operations, Query, query_of
from simrun.service.api.streams import STREAMS
from simrun.service.events import PING, Events, Groups, frame

LAST_EVENT_ID = "Last-Event-ID"
HEADERS = {
    "Content-Type": EVENT_STREAM,
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # a proxy would keep events until it has a page full
}
STALLED_S = 30.0
"""A reader that takes nothing for so long is cut; if it lives it comes back, and is told the present."""
PIECE = 2**16
"""Bytes that are written at once: as much as a connection holds until its reader takes some."""
RETRY_MS = (1000, 3000)
"""When a reader that was cut comes back: not all in the same moment."""

operations = Operations("events")


class RunEventQuery(Query):
    """Where to go on."""

    last_event_id: str | None = Field(
        default=None,
        description="Stands for the header, which a page can't set; the header counts where both are.",
    )


class EventQuery(RunEventQuery):
    """Of which runs."""

    group: str | None = Field(default=None, description="Only those of this group.")


class Reader:
    """One connection that is told events. Its buffer is bounded: what does not fit is not made."""

    def __init__(
        self, response: web.StreamResponse, transport: asyncio.BaseTransport | None
    ) -> None:
        self.response, self._transport = response, transport
        self._begun = False

    async def send(self, data: bytes) -> None:
        """Send bytes that are shared with other readers; waits until the connection has room. Raises ConnectionError."""
        if not self._begun:
            self._begun = True
            await self._write(b"retry: %d\n\n" % random.randint(*RETRY_MS))
        view = memoryview(data)
        for start in range(0, len(data), PIECE):
            await self._write(view[start : start + PIECE])

    async def _write(self, piece: bytes | memoryview) -> None:
        try:
            async with asyncio.timeout(STALLED_S):
                await self.response.write(piece)
        except TimeoutError:
            if isinstance(self._transport, asyncio.WriteTransport):
                self._transport.abort()
            raise ConnectionAbortedError("the reader takes nothing any more") from None


@asynccontextmanager
async def _reader(request: web.Request) -> AsyncIterator[Reader]:
    """Begin a stream, which is left when its reader goes away."""
    async with request.app[STREAMS].open(request, HEADERS, patient=False) as response:
        try:
            yield Reader(response, request.transport)
        except ConnectionError:
            pass  # it went away, or was cut; nobody is left to be told


@operations.get(
    "/api/v1/events",
    scope=Scope.READ,
    query=EventQuery,
    content_type=EVENT_STREAM,
    headers={LAST_EVENT_ID: "the id of the last event that was received: go on behind it"},
)
async def all_events(request: web.Request) -> web.StreamResponse:
    """Stream the changes of all runs: a `snapshot` of those that are live or ended in the last 5 minutes, then a `run` or `deleted` each.

    After a Last-Event-ID that is known, all changes since then instead of the snapshot. A comment at the latest each 15 s.
    """
    query, session = query_of(request, EventQuery), request.app[SESSION]
    groups = _groups(principal_of(request).only, query.group)
    events = session.events
    await events.ready()
    async with _reader(request) as reader:
        await _follow(events, groups, events.place(_last_id(request, query)), reader)
    return reader.response


async def _follow(events: Events, groups: Groups, place: int | None, reader: Reader) -> None:
    """Tell a reader everything behind a place, for as long as it is there."""
    loop = asyncio.get_running_loop()
    heard = loop.time()
    while True:
        data = b""
        if place is None or not events.has(place):
            place, data = events.snapshot(groups)
        elif place < events.seq:
            place, data = events.after(place, groups)
            # Changes that it may not see wake it too, and then no beat does
            if not data and loop.time() - heard > events.bell.beat_s / 2:
                data = PING
        else:
            await events.bell.wait()
            if place == events.seq:
                data = PING
        if data:
            await reader.send(data)
            heard = loop.time()


def _last_id(request: web.Request, query: RunEventQuery) -> str | None:
    """Give the id of the last event that the reader had."""
    return request.headers.get(LAST_EVENT_ID, query.last_event_id)


def _groups(own: Groups, wanted: str | None) -> Groups:
    """Give the groups that a reader is told of: of those it sees, the one it wants."""
    if wanted is None:
        return own
    return frozenset({wanted}) if own is None or wanted in own else frozenset()


@operations.get(
    "/api/v1/runs/{run}/events",
    scope=Scope.READ,
    query=RunEventQuery,
    content_type=EVENT_STREAM,
    also=(204,),
    problems=(404,),
    headers={LAST_EVENT_ID: "the id of the last event that was received"},
)
async def run_events(request: web.Request) -> web.StreamResponse:
    """Stream how far a run is: a `run` at once, one at each change, a comment at the latest each 15 s, `end` at its end.

    204 after a Last-Event-ID that is the last one of a run that has ended: there is nothing to come.
    """
    query, session = query_of(request, RunEventQuery), request.app[SESSION]
    record = await run_of(request)
    over = record.state.terminal and not record.pending
    if over and _last_id(request, query) == str(record.revision):
        return web.Response(status=204)
    with session.feeds.reading(record.id) as feed:
        async with _reader(request) as reader, aclosing(feed.news()) as news:
            last, state = str(record.revision), str(record.state)
            try:
                async for told in news:
                    await reader.send(PING if told is None else told.data)
                    if told is not None:
                        last, state = str(told.seen.revision), str(told.seen.progress.state)
            except NotFound:
                state = "deleted"
            await reader.send(frame("end", json.dumps({"state": state}).encode(), last))
    return reader.response
