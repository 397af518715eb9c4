"""Streams of events, with connections that are made again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import aiohttp

from simrun.base.errors import BackendUnavailable, Exhausted, Unreachable
from simrun.client.problems import text_of
from simrun.client.transport import Transport, api
from simrun.service.progress import RunProgress

TRIES = 10
"""Connections in a row that may fail before a stream is given up: half a minute, in which a server has been started again."""

_PASSING = (Unreachable, BackendUnavailable, Exhausted)
"""What a server, or a proxy before one that is being started again, answers for a while."""


class EventCalls(Transport):
    """Streams."""

    async def events(self, run_id: str) -> AsyncIterator[RunProgress]:
        """Yield how far a run is at each change until it has ended; a connection that is cut is made again."""
        async with aclosing(self._resumed(api("runs", run_id, "events"), {})) as told:
            async for kind, data in told:
                if kind == "end":
                    return
                yield self._model(RunProgress, data)

    async def all_events(
        self, *, group: str | None = None
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield (kind, data) of the changes of all runs, without an end; a connection that is cut is made again.

        snapshot: {at, runs} with the rows of what is live or ended in the last 5 minutes, first of all and whenever changes were missed.
        run: one row. deleted: {id, group}. `group`: only its runs.
        """
        params = {"group": group} if group is not None else {}
        async with aclosing(self._resumed(api("events"), params)) as told:
            async for kind, data in told:
                yield kind, data

    async def _resumed(
        self, path: str, params: dict[str, str]
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Yield (kind, data) of a stream, which goes on behind the last event when its connection was cut."""
        last: str | None = None
        failures = 0
        while True:
            reason = "the stream has ended before the run"
            try:
                async with aclosing(self._stream(path, params=params, last=last)) as told:
                    async for kind, ident, data in told:
                        failures = 0
                        yield kind, data
                        last = ident
            except (aiohttp.ClientError, TimeoutError) as error:
                reason = text_of(error)
            except _PASSING as error:
                reason = str(error)
            failures += 1
            if failures == TRIES:
                raise Unreachable(f"{self.url}: {reason}")
            await asyncio.sleep(min(5.0, 0.2 * 2**failures))
