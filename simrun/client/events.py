"""Streams of events, with connections that are made again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from simrun.base.errors import Unreachable
from simrun.client.problems import text_of
from simrun.client.transport import Transport

TRIES = 10
"""Connections in a row that may fail before a stream is given up: half a minute, in which a server has been started again."""


class EventCalls(Transport):
    """Streams."""

    async def events(self, run_id: str) -> AsyncIterator[dict[str, Any]]:
        """Yield how far a run is at each change until it has ended; a connection that is cut is made again."""
        failures = 0
        while True:
            reason = "the stream has ended before the run"
            try:
                async for kind, _, data in self._stream(f"/api/v1/runs/{run_id}/events"):
                    failures = 0
                    if kind == "end":
                        return
                    yield data
            except (aiohttp.ClientError, TimeoutError) as error:
                reason = text_of(error)
            failures += 1
            if failures == TRIES:
                raise Unreachable(f"{self.url}: {reason}")
            await asyncio.sleep(min(5.0, 0.2 * 2**failures))
