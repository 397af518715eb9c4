"""Connections over which nothing is asked: ended, since each holds one of the files that runs and answers need.

Whoever reaches the address can open one, without a token, and leave it half a head or nothing at all.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from aiohttp import web

log = logging.getLogger(__name__)

HEAD_WITHIN_S = 20.0
"""In which the first request of a connection must have begun."""
LOOK_S = 1.0
MOST = 20_000
"""Connections at once, however many files may be open."""


class Connections:
    """What is known of the connections of a server, by their handlers."""

    def __init__(self, most: int | None = None) -> None:
        """Keep no more than `most` that nothing is asked over: three quarters of what this process may have open, where it is absent."""
        self.most = _most() if most is None else most
        self._busy: dict[web.RequestHandler, int] = {}
        self._asked: set[web.RequestHandler] = set()
        self._since: dict[web.RequestHandler, float] = {}

    @contextmanager
    def busy(self, request: web.BaseRequest) -> Iterator[None]:
        """Say that something is asked, for as long as it is answered."""
        one = request.protocol
        self._asked.add(one)
        self._busy[one] = self._busy.get(one, 0) + 1
        try:
            yield
        finally:
            self._busy[one] -= 1
            if not self._busy[one]:
                del self._busy[one]

    def look(self, connections: Iterable[web.RequestHandler], now: float) -> int:
        """End those that have asked nothing in time and, of too many, those that are idle, the oldest first; how many."""
        self._since = {one: self._since.get(one, now) for one in connections}
        self._asked &= self._since.keys()
        late, idle = [], []
        for one, since in self._since.items():
            if one not in self._asked and now - since >= HEAD_WITHIN_S:
                late.append(one)
            elif one not in self._busy:
                idle.append(one)
        idle.sort(key=lambda one: one in self._asked)  # who has asked before may ask again
        over = max(0, len(self._since) - len(late) - self.most)
        ended = [*late, *idle[:over]]
        for one in ended:
            one.force_close()
        if over:
            log.warning(
                "%d connections, more than the %d there is room for: ended %d that were idle",
                len(self._since),
                self.most,
                len(ended),
            )
        return len(ended)

    async def watch(self, server: web.Server) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look(server.connections, asyncio.get_running_loop().time())


def _most() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, max(1, soft * 3 // 4))


CONNECTIONS = web.AppKey("connections", Connections)
